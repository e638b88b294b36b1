"""The question that shows best what several models are."""

from crt.evaluation.typical import typical_responses
from crt.types import Rollout, Verdict


def test_the_typical_question_shows_every_level_at_its_length():
    def rollouts(*lengths):
        """Responses to the problems a, b and c; a length below 0 is a wrong one's."""
        verdicts = [Verdict.CORRECT if length > 0 else Verdict.WRONG for length in lengths]
        each = zip("abc", lengths, verdicts, strict=True)
        return [Rollout(key, "", abs(length), "eos", verdict) for key, length, verdict in each]

    # a: 30 and 100 for means of 50 and 100; b: 45 and 110 is nearer; c is wrong in one level
    levels = [rollouts(30, 45, 50), rollouts(100, 110, -100)]
    assert [r.length for r in typical_responses(levels, [50, 100])] == [45, 110]
    assert typical_responses(levels[::-1], [100, 50]) is None  # longer, where it should be shorter
