"""The built-in workflows. A workflow of the same name in the user's own file replaces the built-in one."""

from __future__ import annotations

from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.core.workflows.workflow import OnFailure

READS = AgentChoice(permission="read")

WORK = WorkflowDraft(
    name="work",
    about="One agent does the task, as without a workflow. Its result is kept.",
    stages=(StageDraft(name="work"),),
)

# -- plan-build-review -------------------------------------------------------------------------------------------------

_PLAN = """\
You are planning a change to this repository. Another engineer will carry the plan out without having seen what you \
saw. Change no files.

The task:

{{ task.prompt }}

Read the code that matters until you are sure, then answer with the plan and nothing else:

1. What is asked for, in two sentences, and what is not part of it.
2. The files and functions that have to change, and how. Name them exactly.
3. How it will be tested: which existing tests cover it, and which have to be written.
4. What could go wrong (data, compatibility, concurrency, security), and what to do about each.
5. What you assumed because the task does not say it.

Choose the smallest change that does the whole task and follows the conventions of this code.
"""

_BUILD = """\
Carry out this task in this repository, completely, following the plan below.

The task:

{{ task.prompt }}

The plan:

{{ stages.plan.text }}

How to work:

- Read the code that you are about to change first. Where the plan is wrong, do what is right and say so in the end.
- Write or extend tests with the change, run the tests of what you touched, and fix what they find.
- Keep to the conventions of the files around. Change nothing that the task does not need.
- Commit your work in steps that make sense, each with a message that says why.

If the following is not empty, you have been here before, and this is why you are back (a reviewer's findings, or \
what a check printed). Deal with every point; where you do not agree with one, say why:

{{ feedback }}

End with a short summary: what you changed, how you tested it, and what is left open.
"""

_REVIEW = """\
Review another engineer's work in this repository. You decide whether it is good enough to be merged. Change no files.

The task was:

{{ task.prompt }}

The plan was:

{{ stages.plan.text }}

The engineer says:

{{ stages.build.text }}

The work is everything since {{ task.base }}: `git diff {{ task.base }}` shows it, uncommitted changes included. Read \
the whole difference, and as much of the code around it as you need to judge it. Run the tests if you can.

Ask:

- Does it do all of the task, and nothing else?
- Is it correct, also for empty, huge, wrong and concurrent input, and when a step in the middle fails?
- Is it safe: untrusted input, secrets, paths, permissions?
- Do the tests test it? Would they fail if the change were wrong?
- Will the next person understand it?

List your findings, the most important first, each with file and line, what is wrong, and what to do instead. Separate \
defects, which have to be fixed, from remarks, which do not. Do not ask for changes because of taste.

Approve if there are no defects. End your answer with exactly one of these two lines, and nothing after it:
VERDICT: approve
VERDICT: changes
"""

PLAN_BUILD_REVIEW = WorkflowDraft(
    name="plan-build-review",
    about="One agent plans, one builds (checked by `gate.command`), one reviews and may send it back three times.",
    stages=(
        StageDraft(name="plan", chosen=READS, prompt=_PLAN, retry=1),
        StageDraft(name="build", prompt=_BUILD, retry=2, has_set_gate=True),
        StageDraft(
            name="review",
            chosen=READS,
            prompt=_REVIEW,
            retry=1,
            reviews=True,
            back_to="build",
            max_turns=3,
            on_failure=OnFailure.PAUSE,
        ),
    ),
)

# -- review-swarm ------------------------------------------------------------------------------------------------------

_LOOK = """\
Review the commits {{{{ task.range }}}} of this repository, looking for one thing only: {lens}. Change no files.

{{{{ task.prompt }}}}

`git log {{{{ task.range }}}}` lists the commits, `git diff {{{{ task.base }}}}...HEAD` shows what they change; the \
workspace stands at the end of the range. Read the code around the changes as well: most defects are in how new code \
meets old.

{questions}

Report only what you have checked in the code; a suspicion is worth reporting if you say what would settle it. For \
each finding: how bad it is (critical, high, medium, low), file and line, what happens and when, and what to do about \
it. Most important first. Others look for other things: leave those to them. If you find nothing, say so, and \
what you looked at.
"""

_LENSES = {
    "correctness": (
        "whether the code does what it says",
        "Follow the changed paths with real values: empty, one, many, huge, negative, unicode, missing, twice. Look at "
        "errors that are swallowed or handled wrongly, at what is left behind when a step in the middle fails, at "
        "races and reordering, at time zones and rounding, at conditions that are off by one, at callers that still "
        "expect the old behaviour.",
    ),
    "security": (
        "what somebody with bad intentions could do with it",
        "Where does untrusted input come in, and where does it end: commands, queries, paths, templates, logs, "
        "deserialisation? Is every access checked, on the server's side? Are secrets in code, logs, errors or "
        "arguments? Are files and tokens made with the right permissions? Can somebody use up memory, disk, money or "
        "time? Are new dependencies what they claim to be?",
    ),
    "tests": (
        "whether the tests would notice if it were wrong",
        "For each change of behaviour: which test fails if it is taken back? Look for changes without tests, tests "
        "that cannot fail, that test the mock instead of the code, or that depend on time, order or the machine. Run "
        "the tests of what changed if you can, and name the cases that are missing, most important first.",
    ),
    "design": (
        "whether this can be lived with in two years",
        "Is each thing in the place where the next person will look for it? Are there two ways now to do what one did? "
        "Is something general that needs to be simple, or special that will be needed again? Do names say what is "
        "meant? Does it break interfaces, stored data or configuration that others rely on? Is the documentation "
        "still true?",
    ),
}

_SUM_UP = """\
{{ task.prompt }}

Several reviewers have looked at the commits {{ task.range }} of this repository, each for one thing. Their reports \
are below. Make one report out of them for the people who decide whether this is merged. Change no files.

- The same finding from several reviewers is one finding; say who had it.
- Look each finding up in the code before you pass it on. Leave out what is not so, and say at the end what you left \
out and why.
- Order by importance: critical, high, medium, low. For each: file and line, what is wrong, what happens because of \
it, what to do.
- Begin with the result in two sentences: can it be merged, and if not, what has to happen first?
- Say which reviewers gave no report, if there are any: what they would have looked at is not reviewed.

The reports:

{{ stages.look.members }}
"""

REVIEW_SWARM = WorkflowDraft(
    name="review-swarm",
    about="Four agents review a range of commits at the same time, each for one thing; one sums up by importance.",
    prompt="Review this range as you would before a release.",
    stages=(
        StageDraft(
            name="look",
            chosen=READS,
            timeout=1800.0,
            on_failure=OnFailure.FAIL,
            members=tuple(
                MemberDraft(name=name, prompt=_LOOK.format(lens=lens, questions=questions))
                for name, (lens, questions) in _LENSES.items()
            ),
        ),
        StageDraft(name="summary", chosen=READS, prompt=_SUM_UP, retry=1),
    ),
)

BUILT_IN = {draft.name: draft for draft in (WORK, PLAN_BUILD_REVIEW, REVIEW_SWARM)}
