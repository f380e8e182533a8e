"""One NIC that comes up: clean what an earlier one left, record the intent, apply, run the site's scripts, record that it is done."""

from __future__ import annotations

from netcommon.lifecycle import execute, run_effects, site_scripts
from netcommon.lifecycle.context import ADOPT, DEVICE_GONE, POST, PRE, ROLLBACK, SUPERSEDED, Outcome, about, alive, owe
from netcommon.lifecycle.down import farewell, finish, left_undone
from netcommon.lifecycle.migration import awaited, incoming, may_be_ganetis, waits
from netcommon.lifecycle.renamed_device import follow
from netcommon.lifecycle.stale_state import in_use, refuse_port, sweep
from netcommon.operations.base import ABSENT, OURS, replaced, to_json
from netcommon.operations.link import device_link, shut
from netcommon.options.sources import of_settings
from netcommon.plan.planner import plan as plan_of
from runtime import ganeti
from runtime.errors import HostRefused, Interrupted, NetcommonError, NicInvalid
from runtime.record import APPLYING, CHANGING, CLOSING, REVERTING, UP, Record
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.operations.base import Operation
    from runtime.locks import Locks
    from runtime.nic import Nic

    Operations = Sequence[Operation]
    Stages = Iterator[tuple[bool, Operations]]


#: What the site's scripts of down get at least in a rollback, when those of up have used the hook's time (seconds).
ROLLBACK_SECONDS = 2.0


class BringUp:
    """One up, under the locks of its device and UUID."""

    def __init__(self, node: Node, nic: Nic, call: Call, held: Locks, run_scripts: bool, changes: bool = False) -> None:
        """``nic`` has what is kept of it, and need not fit that (``plan``). ``changes``: it fits what is wanted of it."""
        self.changes = changes  #: options change, and nothing else: nobody says anything of the guest
        self.node, self.nic, self.call, self.held, self.log = node, nic, call, held, call.log
        self.scripts = site_scripts.Scripts(node, call, nic) if run_scripts else site_scripts.NONE
        self.run_scripts = run_scripts
        self.incoming = False  #: the guest is still migrating in: what may be on one node only is owed
        self.settled: Record | None = None  #: the record, where something is to be told
        self.first_up = True  #: the NIC was not up before on this device
        self.done = False  #: it is up, and that is on record
        self._earlier: tuple[Record | None] | None = None  #: what was on record before the intent, once that is read
        self.view: View | None = None  #: what was seen of the host, where none but us has changed it since

    def run(self, earlier: Record | None, other: Record | None) -> Outcome:
        """Bring it up, as ``up`` has it; ``earlier``: on record of the NIC, ``other``: of another one on its device."""
        try:
            if self.call.door != ADOPT or self.nic.mode != "openvswitch":
                return self._run(earlier, other)
            from netcommon.lifecycle.adopted_port import marked

            return marked(self.node, self.nic, lambda: self._run(earlier, other))
        except Interrupted as error:
            if not self.done:
                raise
            left_undone(self.call, error)
            return Outcome(True, f"{self.nic.label} is up on {self.nic.interface}")

    def _run(self, earlier: Record | None, other: Record | None) -> Outcome:
        node, nic, view = self.node, self.nic, execute.once(self.node)
        link = device_link(view, nic.interface)
        refuse_port(view, link, nic.mode)
        self.scripts.check()
        current = follow(node, view, earlier) if earlier and earlier.ifindex == link.index and alive(node, view, earlier) else None
        if current and current is not earlier:  # the device was renamed
            node.store.write(current)
        if current and current.state == REVERTING:
            earlier = current = self._finished(current, view)
            view = execute.once(node)
        if current and current.state == CHANGING:
            earlier = current = self._as_before(current)
            view = execute.once(node)
        self.first_up = current is None
        planned = self.plan(current)
        aside = earlier if earlier and not current and alive(node, view, earlier) else None
        stale = [record for record in (earlier if not current and not aside else None, other) if record]
        old = execute.decode(current)[0] if current else []
        touched = [record for record in (*stale, aside) if record]
        keyed = [*planned, *old, *(operation for record in touched for operation in execute.decode(record)[0])]
        if stale or aside:
            execute.resolve(node, view, planned, old, nic.uuid, self.log)  # refuses before anything is touched
        # the scripts of those who left may hang: they get a share of the time, and no other NIC waits for them
        stale = [farewell(node, record, self._leaving(record, view)) for record in stale]
        self.held.keys(execute.locks_of(keyed))
        view = execute.once(node)  # as it is now that the keys are ours
        resolved = execute.resolve(node, view, planned, old, nic.uuid, self.log)
        if aside:
            self.log.warning(f"still alive on {aside.device}: that record is closed when its device goes")
            self._move_aside(aside)
        for record in stale:
            self._clean(record, self._leaving(record, view))
        if stale or aside:
            view = execute.once(node)
        if sweep(node, view, link, nic.mode, old, self.log, shut=not current and self._early(view, link, resolved)) or stale or aside:
            view = execute.once(node)
            resolved = execute.resolve(node, view, planned, old, nic.uuid, self.log)
        self.view = None if self.scripts.any or (current and current.scripts) else view
        execute.refuse_another(resolved, link.name, link.index)
        if current:
            return self._converge(current, link, old, resolved, view)
        return self._start(link, resolved)

    def plan(self, current: Record | None) -> list[Operation]:
        """What is to be done now: all, or, while the guest is on its way, what may hold on two nodes. One that is here stays here."""
        planned = self._planned()
        if self.call.door == ADOPT and current is None:
            view = execute.once(self.node)
            planned = [operation.running(view) for operation in planned]
        if self.changes and current is not None:
            self.incoming = awaited(self.node, current)
        elif self._expected(current, planned):
            self.incoming = incoming(self.node, self.nic, self.call)
        owed = [operation for operation in planned if self.incoming and operation.exclusive()]
        for operation in owed:
            self.log.info(f"owed until the guest has arrived: {operation.describe()}")
        return [operation for operation in planned if operation not in owed]

    def _planned(self) -> list[Operation]:
        """Plan the NIC; with what it can have of what is kept of it, where it cannot have all of that."""
        try:
            return [] if self.scripts.instead else plan_of(self.nic, self.node.settings)
        except NicInvalid:
            if self.changes or not self.nic.wanted:
                raise
        from netcommon.lifecycle.changed_options import with_fitting

        self.nic = with_fitting(self.node, self.nic, self.log)
        return plan_of(self.nic, self.node.settings)

    def _expected(self, current: Record | None, planned: list[Operation]) -> bool:
        """Tell whether the guest may still be on its way. Where the call says so it is on record even if nothing is owed: a change may.

        Without such a word only a NIC that would owe something is looked at more closely, which costs a hook some files. It is a word
        that the QEMU that calls waits for its guest, and for a guest of plain QEMU the only one.
        """
        if current is not None and not current.incoming:
            return False
        return self.call.phase == PRE or any(operation.exclusive() for operation in planned) or waits(self.node, self.call)

    def _finished(self, record: Record, view: View) -> Record | None:
        """Bring an undoing that stopped to its end: our mark may be gone, what is left look like another's. Give what is on record."""
        try:
            finish(self.node, record, self._leaving(record, view), self.held)
        except NetcommonError as error:
            self.log.warning(f"still not undone: {error}")
        finally:
            self.held.release_keys()
        return self.node.store.read(record.key)

    def _as_before(self, record: Record) -> Record:
        """Brings a NIC back whose change was cut off, or could not be taken back; one that still cannot be is changed as it is."""
        from netcommon.lifecycle.way_back import change_back  # few ups need it

        try:
            back = change_back(self.node, record, about(self.call, record), self.held)
            # the guest may have been told of what did not hold
            self.settled = back if back.state == UP and not self.scripts.instead else None
            return back
        except NetcommonError as error:
            self.log.warning(f"it is not as it was before a change that was cut off: {error}")
            return self.node.store.read(record.key) or record
        finally:
            self.held.release_keys()

    def _clean(self, record: Record, call: Call) -> None:
        """Undoes an earlier NIC. What cannot be undone stays on its record, for gc, and keeps this one from nothing."""
        self.log.info(f"cleaning up after {record.nic.label} ({record.uuid}) on {record.device}")
        try:
            finish(self.node, record, call, self.held)
        except NetcommonError as error:
            self.log.error(f"of {record.nic.label} on {record.device} something is left: {error}")
            left = self.node.store.read(record.key)
            if left is not None and left.key == self.nic.uuid:
                self._move_aside(left)

    def _move_aside(self, record: Record) -> None:
        """Makes room for this NIC's own record; what the earlier one shares with others goes along.

        It is an owner under its new name before it loses the old one: a kill in between would leave what it has made without an owner,
        and the next NIC that needs it would take it for the administrator's.
        """
        store, operations = self.node.store, execute.decode(record)[0]
        store.move_aside(record, lambda moved: execute.claim(self.node, operations, moved.key))
        for key in execute.keys_of(operations):
            store.owners.release(key, record.key)

    def _leaving(self, record: Record, view: View) -> Call:
        """The call in which an earlier NIC is undone: its scripts get at most a third of the time that is left."""
        now = self.node.clock.now()
        context = SUPERSEDED if alive(self.node, view, record) else DEVICE_GONE
        return about(self.call, record)._replace(context=context, deadline=now + max(self.call.deadline - now, 0.0) / 3)

    def _early(self, view: View, link: Link, resolved: list[Operation]) -> bool:
        """Tell whether the device is up before its time, and is to be shut first. The guest of an adopted one is on the network already.

        The kernel takes addresses and routes from a device that goes down: one that has the administrator's own, and joins no bridge,
        stays up. What its guest sends goes where it went before, until its rule stands.
        """
        if not link.up or self.call.door == ADOPT or not any(one.opens() for one in resolved):
            return False
        return any(operation.replugs() for operation in resolved) or not in_use(view, link)

    def _start(self, link: Link, resolved: list[Operation]) -> Outcome:
        if self.call.door == ADOPT:
            resolved = [one.of_running() for one in resolved]
        first = [shut(link.name, link.index)] if self._early(self.view or execute.once(self.node), link, resolved) else []
        self._carry_out(self._record(link, resolved), [], resolved, run=True, first=first)
        return Outcome(True, f"{self.nic.label} is up on {self.nic.interface}")

    def _record(self, link: Link, operations: list[Operation]) -> Record:
        node = self.node
        return Record(
            self.nic,
            link.index,
            node.identity.boot,
            node.identity.netns,
            APPLYING,
            tuple(map(to_json, operations)),
            self.call.door,
            created=node.clock.wall(),
            monotonic=node.clock.now(),
            incoming=self.incoming,
            ganeti=may_be_ganetis(node, self.nic, self.call),
            by_settings=of_settings(self.nic, node.settings),
        )

    def _converge(self, current: Record, link: Link, old: list[Operation], resolved: list[Operation], view: View) -> Outcome:
        """The same NIC on the same device: only what differs is done, and the scripts run only if the NIC's own description changed.

        ``view``: the one on which ``resolved`` was resolved; nothing has been changed since.

        An operation whose place a new one takes over stays on record until that is done, and is not reverted before. Those are last
        on the record, since what they set on a port is undone before it leaves its bridge.
        """
        from netcommon.lifecycle.reconcile import delta  # a first up has nothing to compare with

        by_settings = of_settings(self.nic, self.node.settings)
        described = current.nic.description != self.nic.description or current.described_anew
        finished = current.state in (UP, CLOSING)
        early = not finished and current.door != ADOPT and self._early(view, link, resolved)
        difference = delta(view, old, resolved, shut(current.device, current.ifindex), finished, early)
        # one that could not be completed has what is owed on its record already
        owed = [operation for operation in difference.make if operation.exclusive()] if current.incoming else []
        changed = bool(difference.gone or any(one not in owed for one in difference.new)) or described or current.state == CHANGING
        if finished and not (difference.make or changed or owed):
            run_effects.warn_dropped(execute.once(self.node), self.nic, resolved, self.log)
            nic = current.nic._replace(wanted=self.nic.wanted, revision=self.nic.revision, told=self.nic.told)
            record = current._replace(state=self._state(current), incoming=self.incoming, nic=nic, by_settings=by_settings)
            if record != current:
                self.node.store.write(record)
            if self.call.phase == POST or current.incoming != self.incoming:
                self._settle(record)
            if self.call.phase == POST and self.scripts.instead:
                self.held.release_keys()
                self.scripts.up()  # it does all that is done for this NIC, and its guest has arrived
            return Outcome(False, f"{self.nic.label} is up on {self.nic.interface} already")
        for operation in difference.make if finished and not changed else ():
            if operation not in owed:
                self.log.warning(f"had drifted, is mended: {operation.describe()}")
        run = described or not finished
        unknown = execute.decode(current)[1]
        operations = (*unknown, *map(to_json, [*resolved, *difference.gone]))
        before = current if finished else current.before
        record = current._replace(
            nic=self.nic,
            state=CHANGING if before else APPLYING,
            operations=operations,
            incoming=self.incoming,
            by_settings=by_settings,
            before=before,
        )
        settled = (*unknown, *map(to_json, resolved))
        owe(self.node, current, map(to_json, difference.gone), self.log)
        left = current if run and current.scripts and self.run_scripts else None
        self._carry_out(record, list(difference.gone), list(difference.make), run, settled, difference.shut, left)
        return Outcome(True, f"{self.nic.label} on {self.nic.interface} was brought up to date")

    def _carry_out(
        self,
        record: Record,
        outdated: list[Operation],
        todo: list[Operation],
        run: bool,
        settled: tuple[Mapping[str, object], ...] | None = None,
        first: Sequence[Operation] = (),
        left: Record | None = None,
    ) -> None:
        """Intent to disk, then the host, then the scripts, then done. ``left``: what the NIC was, where the scripts of its down are owed.

        Whatever fails, a NIC that was up is as it was before; of one that was not, or whose device has gone, all of the record is reverted.
        """
        node, store = self.node, self.node.store
        record = intended = record._replace(scripts=record.scripts or (run and self.scripts.any))
        begun = False
        try:
            self._intend(record, todo if settled is None else execute.decode(record)[0])
            begun = True
            if left is not None:
                keys = execute.locks_of([*execute.decode(left)[0], *execute.decode(record)[0]])
                self.held.release_keys()  # nobody else waits for a script that hangs; what is shared has this NIC as an owner already
                site_scripts.Scripts(node, self._leaving(left, node.host.view()), left.nic).down()
                self.held.keys(keys)
                now = self._taken_meanwhile(todo, record.key)
                if now:
                    from netcommon.lifecycle.reconcile import exchanged

                    todo = [now.get(one, one) for one in todo]
                    settled = exchanged(now, settled or ())
                    record = intended = record._replace(operations=exchanged(now, record.operations))
                    store.write(record)
            lasting = record._replace(operations=record.operations if settled is None else settled)
            shut = bool(first) and settled is not None
            wanted = execute.decode(lasting)[0] if outdated or shut else todo
            for comes, operations in self._stages(record, first, outdated, wanted, todo, shut) if outdated or first else [(True, todo)]:
                if not comes:
                    execute.retire(node, operations, record.key, self.log)
                    continue
                try:
                    execute.apply(node, operations, self.log)
                except execute.Changed as error:
                    self.log.warning(f"{error}: once more")
                    self._again(lasting)
            if outdated:
                execute.settle_owners(node, record.key, outdated, wanted)
            self.held.release_keys()
            if run:
                self.scripts.up()
                self._refuse_gone(record)
            if settled is not None:
                record = record._replace(operations=settled)
            record = record._replace(state=self._state(record), before=None)
            store.write(record, None if run and self.scripts.any else intended)
            self.done = True
        except BaseException as error:
            if self.done:
                pass  # nothing is taken back
            elif not begun:
                self._take_back(intended)
            elif intended.before is None or self._gone(intended):
                self.roll_back(record, error)
            else:
                self._put_back(intended, error)
            raise
        self._announce(record)

    def _taken_meanwhile(self, todo: list[Operation], key: str) -> dict[Operation, Operation]:
        """Give what of ``todo`` another NIC has got since it was resolved, and what it is now. Raises HostRefused or TryAgain."""
        alone = [one for one in todo if one.locked() != one.shared() and one._asdict().get("found") == ABSENT]
        if not alone:
            return {}
        now = execute.resolve(self.node, execute.once(self.node), alone, [], key, self.log)
        return {old: replaced(old, found=OURS) for old, new in zip(alone, now, strict=True) if new._asdict()["found"] == OURS}

    def _gone(self, record: Record) -> bool:
        """Tell whether the device has gone; not where the host does not answer."""
        try:
            return not alive(self.node, execute.once(self.node), record)
        except NetcommonError:
            return False

    def _refuse_gone(self, record: Record) -> None:
        """Raise HostRefused where the device has gone while the site's scripts ran: no NIC is up without its device."""
        if self.scripts.any and self._gone(record):
            became = "has gone" if self.node.host.view().link(record.device) is None else "was replaced by another device"
            raise HostRefused(f"{record.device} {became} while the site's scripts ran", "see what they, or its hypervisor, did to it")

    def _state(self, record: Record) -> str:
        """Give the state of what is done. An up takes a NIC back that waits for its device to go; a change of options does not."""
        return CLOSING if self.changes and record.closing else UP

    def _stages(
        self, record: Record, first: Operations, outdated: Operations, wanted: list[Operation], todo: Operations, shut: bool
    ) -> Stages:
        """Give what is applied, and what is reverted, in its order (reconcile.stages). ``shut``: its device goes down."""
        from netcommon.lifecycle.reconcile import Leaving, networks, part, stages  # a first up has nothing that goes

        moves = networks(self._before(record)) != networks(wanted)
        goes = part(execute.once(self.node), outdated, wanted, moves, shut) if outdated else Leaving()
        # what goes may have taken along what stays, and so does a device that goes down
        return stages(first, goes, lambda: self._left_to_do(record, wanted, todo) if goes.early or shut else todo)

    def _left_to_do(self, record: Record, wanted: list[Operation], todo: Operations) -> Operations:
        """Select what of ``wanted`` is to be applied once something else has made room: ``todo``, and what went along with that."""
        from netcommon.lifecycle.reconcile import confining_first

        view = execute.once(self.node)
        lost = {operation for operation, _text in execute.drift(view, wanted)}
        lost.update(todo)
        found = [operation for operation in wanted if operation in lost]
        return confining_first(view, self._before(record), found)

    def _before(self, record: Record) -> list[Operation]:
        """Give what the NIC was before it is changed."""
        return execute.decode(record.before)[0] if record.before else []

    def _put_back(self, record: Record, error: BaseException) -> None:
        """Ends a change that failed: the NIC is as it was, or stays up with both lists on its record."""
        from netcommon.lifecycle.way_back import change_back

        self.log.info(f"put back as it was: {error}")
        now = self.node.clock.now()
        call = self.call._replace(context=ROLLBACK, deadline=max(self.call.deadline, now + ROLLBACK_SECONDS))
        try:
            back = change_back(self.node, record, call, self.held, isinstance(error, Interrupted))
            self.settled = back if back.state == UP else None  # who is told where the guest is was perhaps told of another place
        except NetcommonError as second:
            self.log.error(f"it could not be put back as it was, and stays up: {second}")

    def _again(self, record: Record) -> None:
        """Does what does not hold of the whole record: what held a moment ago, and was left out, may have gone too."""
        node, known = self.node, execute.decode(record)[0]
        view = execute.once(node)
        resolved = execute.resolve(node, view, known, known, record.key, self.log)
        execute.apply(node, [operation for operation, _text in execute.drift(view, resolved)], self.log)

    def first(self) -> bool:
        """Whether there is nothing on record of it, or of its device, and no script to run: then ``begin`` and ``end`` are all of an up.

        Raises HostRefused for a script that must not be run.
        """
        self.scripts.check()
        none = self.node.store.read(self.nic.uuid) is None and self.node.store.by_device(self.nic.interface) is None
        return none and not (self.scripts.any or self.scripts.instead)

    def begin(self, link: Link, resolved: list[Operation]) -> Record:
        """Puts the intent to disk, for a caller that applies it, among others, and then calls ``end`` or ``roll_back``."""
        record = self._record(link, resolved)
        try:
            self._intend(record, resolved)
            return record
        except BaseException:
            self._take_back(record)
            raise

    def end(self, record: Record, failure: NetcommonError | None) -> Outcome:
        """The NIC is up; or it is undone, and the failure raised."""
        try:
            if failure is not None:
                raise failure
            record, begun = record._replace(state=UP), record
            self.node.store.write(record, begun)
        except BaseException as error:
            self.roll_back(record, error)
            raise
        self._announce(record)
        return Outcome(True, f"{self.nic.label} is up on {self.nic.interface}")

    def _intend(self, record: Record, operations: list[Operation]) -> None:
        """Raises HostRefused where the intent cannot be put on disk: nothing was changed, and ``_take_back`` is for the caller to call."""
        self._earlier = (self.node.store.read(record.key),)
        self.node.store.write(record)
        execute.claim(self.node, operations, record.key)

    def _announce(self, record: Record) -> None:
        """Tells Ganeti's files, and whoever is to be told."""
        node = self.node
        run_effects.warn_dropped(execute.once(node), self.nic, execute.decode(record)[0], self.log)
        if node.settings.ganeti_nic_files != "off":
            try:
                ganeti.write_nic_file(node.paths, self.nic)
            except (OSError, NetcommonError) as error:
                self.log.warning(f"Ganeti's nic file was not written: {error}")
        self._settle(record)

    def _settle(self, record: Record) -> None:
        """The NIC is up, and that is to be told; not of one that the site's script has set up instead of us."""
        self.settled = None if self.scripts.instead else record

    def _take_back(self, record: Record) -> None:
        """The intent could not be put on disk whole, or no more than that was done: the record is as it was."""
        if self._earlier is None:
            return
        before = self._earlier[0]
        try:
            self.node.store.write(before) if before is not None else self.node.store.remove(record)
            had = execute.decode(before)[0] if before is not None else []
            execute.settle_owners(self.node, record.key, execute.decode(record)[0], had)
        except (OSError, NetcommonError) as error:
            self.log.error(f"the record could not be put back: {error}")

    def roll_back(self, record: Record, error: BaseException) -> None:
        """In reverse order, each step on its own; what cannot be undone stays recorded, for gc."""
        self.log.info(f"rolled back: {error}")
        now = self.node.clock.now()
        call = self.call._replace(context=ROLLBACK, deadline=max(self.call.deadline, now + ROLLBACK_SECONDS))
        try:
            finish(self.node, record._replace(state=REVERTING, before=None), call, self.held)
        except Exception as second:  # whatever it is, the others of a batch are rolled back too
            kind = "" if isinstance(second, NetcommonError) else f"{type(second).__name__}: "
            self.log.error(f"the rollback is not complete: {kind}{second}")
