#!/bin/bash
# CRT with verl on SLURM: Ray on every node, `crt train` once, on the first.
#   sbatch recipes/cluster/slurm.sh recipes/cluster/deepseek-r1-7b.toml /shared/runs/deepseek-r1-7b
# The run directory must be on a file system that all nodes see. Submitted again, it goes on.
#SBATCH --job-name=crt
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
set -euo pipefail

recipe=$1
run=$2
port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  ray start --head --node-ip-address="$address" --port=$port --block &
sleep 20
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
    --exclude="$head" --overlap ray start --address="$address:$port" --block &
fi
sleep 30

if [ -f "$run/config.json" ]; then
  words=(--resume "$run")
else
  words=("$recipe" --engine verl --out "$run")
fi
# SIGTERM ten minutes before the end of the job: crt saves after the step under way, exit code 143.
RAY_ADDRESS="$address:$port" srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  crt train "${words[@]}" &
training=$!
trap 'kill -TERM $training; wait $training' TERM
wait $training
