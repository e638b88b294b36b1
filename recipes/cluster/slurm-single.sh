#!/bin/bash
# CRT with TRL on one GPU, on SLURM.
#   sbatch recipes/cluster/slurm-single.sh recipes/single-gpu-lora.toml runs/lora
# Submitted again, it goes on where it was left.
#SBATCH --job-name=crt
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
set -euo pipefail

recipe=$1
run=$2
if [ -f "$run/config.json" ]; then
  words=(--resume "$run")
else
  words=("$recipe" --out "$run")
fi
# SIGTERM ten minutes before the end of the job: crt saves after the step under way, exit code 143.
crt train "${words[@]}" &
training=$!
trap 'kill -TERM $training; wait $training' TERM
wait $training
