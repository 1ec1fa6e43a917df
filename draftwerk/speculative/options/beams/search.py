"""A beam search in pages: branches that share blocks until they differ, and step together.

    root (an ordinary sequence)        reads the prompt, all but its last token
      └── members, one a hypothesis    share its blocks; all are in a round, or none

A round verifies the draft trees behind all members at once. As long as every survivor
of a step is one of its nodes, the next step's candidates are known too, so one round takes as many
exact steps as the trees cover. Then each survivor forks its parent's table; the KV of its path
waits in the parent's tree slots, until the next round copies shared blocks and moves the slots.
Of a model with recurrent layers each member reads its parent's state and its path's tokens again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from draftwerk.cache.kinds.recurrent_states import SequenceStates
from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.options.beams.decisions import Beams, common_prefix
from draftwerk.speculative.options.beams.members import (
    GroupRows,
    Member,
    Want,
    blocks_needed,
    catching_up,
    forked,
    with_tokens,
)
from draftwerk.speculative.options.beams.steps import BeamPosition, take_steps, with_known
from draftwerk.speculative.options.beams.text_snapshots import TextSnapshots
from draftwerk.speculative.options.beams.verified_trees import (
    as_one_row,
    path_origins,
    path_to,
    seen,
)
from draftwerk.speculative.rounds import Row, VerifiedRow
from draftwerk.speculative.row_parts.beam_rows import Branch, Seen
from draftwerk.speculative.row_parts.row_options import RowOptions
from draftwerk.speculative.sequence import RoundPlan, Sequence

SEARCH_ROOM = 2
"""Room for drafts in a branch's row, in that of an ordinary one: trees are uneven."""
SEEN_MORE = 2
"""Candidates sent to the draft sources, beyond the beam's width."""
SEEN_MAX = 6
"""The same in all."""


@dataclass(slots=True, eq=False)
class BeamSearch:
    """One request's search; its root is what the scheduler queues, admits and preempts."""

    beams: Beams
    new_id: Callable[[], int]
    """Names a branch: a number that no other sequence has."""
    choices: int = 1
    """How many of the best texts the client gets."""
    sent: int = 0
    """Settled tokens that the client has been sent, maybe before a crash."""
    shows: bool = False
    """Whether the client is sent the best text so far, final or not."""
    members: list[Member] = field(default_factory=list[Member])
    """One for each live hypothesis, in their order; none while the root reads."""
    origins: list[str] = field(default_factory=list[str])
    """Where the tokens at each generated position came from."""
    _seen: list[Seen] = field(default_factory=list[Seen])
    """The candidates of the newest rows, until they are sent to the draft sources."""
    _snapshots: TextSnapshots = field(default_factory=TextSnapshots)
    _finished_ids: list[int] = field(default_factory=list[int])
    """Branches that have died; open until those that copy them have been planned."""

    @property
    def row_count(self) -> int:
        return max(1, len(self.members))

    @property
    def has_begun(self) -> bool:
        """Whether it has taken a step."""
        return self.beams.length_max > 0

    # --- planning -----------------------------------------------------------------------------

    def plan(self, root: Sequence, plan: RoundPlan, draft_max: int) -> GroupRows | None:
        """Return the rows of all members, or None if they do not all fit.

        What runs is preempted for them, this very search at last.
        """
        if not self.members:
            self._fork(root)
        pools = plan.pools
        tokens_left = min(plan.tokens_left, len(self.members) * pools.chunk_max)
        wants = self._wants(root, min(draft_max, pools.draft_max), tokens_left)
        if not pools.has(blocks_needed(wants)):
            wants = [want._replace(drafts=0) for want in wants]
        need = blocks_needed(wants)
        if not wants or not plan.make_room(root, lambda: pools.has(need)):
            return None
        group = GroupRows()
        for want in wants:
            self._add(group, root, want)
        return group

    def take_finished_ids(self) -> list[int]:
        """Return the branches that the devices can drop with the rows just planned."""
        finished_ids, self._finished_ids = self._finished_ids, []
        return finished_ids

    def tail_blocks(self, root: Sequence) -> int:
        """Return how many blocks the members need behind the root's, to begin with."""
        tail = max(len(each.tokens) for each in self.beams.live) - root.generated
        return len(self.beams.live) * -(-(tail + 1) // root.memory.block_size)

    def _fork(self, root: Sequence) -> None:
        """Let every live hypothesis branch off the root, which has read all but its last token."""
        self.members = forked(root, self.beams.live, self.new_id)
        root.memory.truncate(0)

    def _wants(self, root: Sequence, draft_max: int, tokens_left: int) -> list[Want]:
        """Return the rows to plan: all members step together, once all that they read fits."""
        count, read = len(self.members), sum(max(1, each.pending) for each in self.members)
        if tokens_left < read:
            return catching_up(self.members, tokens_left)
        room = self.beams.rules.tokens_max - self.beams.length - 1
        drafts = min(draft_max, root.request.draft_max, room, (tokens_left - read) // count)
        return [Want(member, len(member.tokens), drafts) for member in self.members]

    def _add(self, group: GroupRows, root: Sequence, want: Want) -> None:
        member, stop, drafts = want
        copies = member.memory.make_writable(member.base)
        reserved = member.memory.reserve_row(stop + drafts)
        assert copies is not None and reserved, "the blocks were counted before"
        group.copies.extend(copies)
        group.moves.extend(member.moves(root.memory.block_size))
        member.base, member.path = member.computed, ()
        hypothesis = self.beams.live[self.members.index(member)]
        rules = self.beams.rules
        branch = Branch(
            group_id=root.sequence_id,
            candidates=max(rules.candidates, root.request.sampling.logprobs),
            origin=member.origin,
            score=hypothesis.score,
            width=rules.width,
            seen=tuple(self._seen),
            known=member.known,
            head_candidates=member.head_candidates,
        )
        self._seen.clear()
        states, state = root.memory.part(SequenceStates), None
        if states is not None and member.state is not None:
            saves = self._snapshots.begin_row(states, member, stop, root.request.prompt_count)
            state = states.go_on(member.state, saves)
        options = member.memory.row_options(stop + drafts)
        group.rows.append(
            Row(
                sequence_id=member.sequence_id,
                start=member.base,
                stop=stop,
                samples=stop == len(member.tokens),
                draft_max=drafts,
                new_token_ids=tuple(member.tokens[member.sent_count :])
                if member.sent_count
                else (),
                new_sequence=None
                if member.sent_count
                else with_tokens(root.new_sequence(), member.tokens),
                blocks=member.memory.table.first_blocks(stop + drafts),
                options=RowOptions(branch=branch, state=state, **options),
            )
        )
        member.sent_count, member.origin = len(member.tokens), 0

    # --- committing ---------------------------------------------------------------------------

    def commit(self, root: Sequence, parts: list[VerifiedRow]) -> VerifiedRow | None:
        """Apply the rows that came back, step by step.

        Returns what became of all draft trees as if they were one row's draft, or None if the
        members only caught up.
        """
        members = {member.sequence_id: member for member in self.members}
        states = root.memory.part(SequenceStates)
        parts = [
            part._replace(decision=with_known(part.decision, members[part.row.sequence_id].known))
            for part in parts
        ]
        for row, _, _ in parts:
            member = members[row.sequence_id]
            member.base = row.stop
            member.memory.commit(member.tokens, row.start, row.stop)
            if states is not None and row.options.state is not None:
                member.state = row.options.state.target
                own = member, row.options.state, root.request.prompt_count
                self._snapshots.end_row(states, *own)
        outcome = self._advance(root, parts) if parts[0].row.samples else None
        if states is not None:
            self._snapshots.keep(states, self._texts())
            latest = (each.state for each in self.members if each.state is not None)
            states.end_branches(latest)
        return outcome

    def _texts(self) -> Iterable[tuple[int, ...]]:
        """Yield the texts that may come to be replies."""
        beams = self.beams
        texts = beams.finished[: self.choices] if beams.done else [*beams.live, *beams.finished]
        yield from (each.tokens for each in texts)

    def _advance(self, root: Sequence, parts: list[VerifiedRow]) -> VerifiedRow:
        """Take as many steps as the draft trees cover."""
        count_max = min(self.beams.rules.width + SEEN_MORE, SEEN_MAX)
        self._seen.extend(seen(self.members, parts, count_max))
        positions, best = take_steps(self.beams, parts, not root.request.sampling.edits_logits)
        self._replace_members(root, parts, positions)
        self.origins.extend(path_origins(parts, best))
        return as_one_row(parts, best)

    def _replace_members(
        self, root: Sequence, parts: list[VerifiedRow], positions: list[BeamPosition]
    ) -> None:
        """Give each survivor its parent's blocks and, to the first of a parent, its name."""
        old = self.members
        prompt = root.tokens[: root.request.prompt_count]
        taken: set[int] = set()
        self.members = []
        survivors = self.beams.live if positions else []
        head_candidates = [
            {(one.node, one.token): one.candidates for one in part.decision.options.head_candidates}
            for part in parts
        ]
        for hypothesis, (tip, position, known) in zip(survivors, positions, strict=True):
            number, node = position or tip
            parent, first = old[number], number not in taken
            path = path_to(parts[number].draft, node)
            if parent.state is not None:
                path, known = (), ()
            taken.add(number)
            member = Member(
                parent.sequence_id if first else self.new_id(),
                [*prompt, *hypothesis.tokens],
                parent.memory.fork(),
                parent.base,
                len(parent.tokens),
                0 if first else parent.sequence_id,
                path,
                known or (),
                parent.state,
                () if known else head_candidates[tip[0]].get((tip[1], hypothesis.tokens[-1]), ()),
            )
            # Whatever lies behind the path is of no use: less to copy.
            member.memory.truncate(member.base + max(member.path, default=-1) + 1)
            self.members.append(member)
        for number, parent in enumerate(old):
            parent.memory.leave()
            if number not in taken:
                self._finished_ids.append(parent.sequence_id)

    # --- leaving --------------------------------------------------------------------------------

    def leave(self, root: Sequence) -> list[int]:
        """Give back every block; return the branches to close.

        The hypotheses stay: the root comes back with the tokens that they share, reads those, and
        lets them branch off again.
        """
        open_ids = [member.sequence_id for member in self.members if member.is_open]
        for member in self.members:
            member.memory.leave()
        self.members, self._snapshots = [], TextSnapshots()
        shared = common_prefix([each.tokens for each in self.beams.live] or [()])
        root.tokens[root.request.prompt_count :] = shared
        return [*self.take_finished_ids(), *open_ids]

    def memories(self) -> Iterable[SequenceMemory]:
        return (member.memory for member in self.members)

    def check(self) -> None:
        """Assert that hypotheses and members agree."""
        self.beams.check()
        if self.members:
            texts = [
                member.tokens[-len(each.tokens) or len(member.tokens) :]
                for member, each in zip(self.members, self.beams.live, strict=True)
            ]
            assert texts == [list(each.tokens) for each in self.beams.live], "another text"
        for member in self.members:
            assert member.computed < len(member.tokens) or member.known, "nothing left to compute"
            assert member.computed <= len(member.tokens), "more KV than tokens"
            assert member.computed <= member.memory.slots, "KV outside the table"
