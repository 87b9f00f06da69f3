"""The screen of `onefold top`, for terminals from 80 columns and 24 lines. It needs textual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from onefold.cli.overview import (
    ERROR_COLUMNS,
    QUEUE_COLUMNS,
    WORKER_COLUMNS,
    Overview,
    look,
)
from onefold.cli.render import SHORT, escaped, job_lines, problem
from onefold.errors import InvalidInput, JobNotFound, OnefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from onefold import Job, Onefold, Tenant

T = TypeVar("T")

FOUND: Final = 100
"""The most jobs of a search."""
FILTERS: Final = ("kind", "queue", "unique_key", "tag")
"""What a search compares the text with, if it is not an id."""


class Rows(DataTable[Text]):
    """A table whose rows have keys, and which keeps its cursor when its rows change."""

    def __init__(self, columns: Sequence[str], **options: Any) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, **options)
        self._labels = columns
        self.add_columns(*columns)

    def show(self, rows: Iterable[Sequence[object]]) -> None:
        """Replace the rows; the first cell is the key."""
        cursor = self.cursor_row
        # As text: stored values must not be read as markup.
        cells = [[Text("" if cell is None else escaped(str(cell))) for cell in row] for row in rows]
        self.clear(columns=True)
        # With widths: otherwise textual measures later, and does not draw again what it has drawn.
        for label, *column in zip(map(Text, self._labels), *cells, strict=True):
            self.add_column(label, width=max(cell.cell_len for cell in (label, *column)))
        for row in cells:
            self.add_row(*row, key=row[0].plain)
        self.move_cursor(row=min(cursor, self.row_count - 1))

    @property
    def chosen(self) -> str | None:
        """The key of the row under the cursor."""
        if not self.is_valid_coordinate(self.cursor_coordinate):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value


class Confirmation(ModalScreen[bool]):
    """A question that is answered with y or n."""

    BINDINGS: ClassVar = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The question and its keys."""
        yield Static(self._text, markup=False)
        yield Footer()


class Details(ModalScreen[None]):
    """A job as text, which can be scrolled."""

    BINDINGS: ClassVar = [Binding("escape,q", "dismiss", "Back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = escaped(text)

    def compose(self) -> ComposeResult:
        """The text and the keys."""
        with VerticalScroll():
            yield Static(self._text, markup=False)
        yield Footer()


class Found(ModalScreen[None]):
    """The jobs of a queue, or of a search."""

    BINDINGS: ClassVar = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("r", "app.replay", "Replay"),
    ]

    def __init__(self, title: str, jobs: Sequence[Job]) -> None:
        super().__init__()
        self._title = title
        self._jobs = jobs

    def compose(self) -> ComposeResult:
        """The title, the jobs and the keys."""
        yield Static(escaped(self._title), markup=False)
        yield Rows(ERROR_COLUMNS, id="found")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the table."""
        self.query_one(Rows).show(_job_cells(job) for job in self._jobs)


class Search(ModalScreen[str]):
    """A line for the text to search."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss('')", "Back")]

    def compose(self) -> ComposeResult:
        """The line and the keys."""
        yield Static("An id, a kind, a queue, a unique key or a tag:")
        yield Input()
        yield Footer()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for the text."""
        self.dismiss(event.value.strip())


class Top(App[None]):
    """Queues, workers and failures, refreshed again and again."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    CSS: ClassVar[str] = """
    #headline { height: auto; max-height: 2; text-style: bold; }
    #message { height: 1; color: $warning; }
    Rows { height: 1fr; margin-top: 1; scrollbar-size-horizontal: 0; }
    #workers { max-height: 6; }
    Confirmation, Search, Details, Found { background: $background; }
    """
    BINDINGS: ClassVar = [
        Binding("p", "pause", "Pause"),
        Binding("r", "replay", "Replay"),
        Binding("i", "inspect", "Inspect"),
        Binding("slash", "search", "Search"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, onefold: Onefold, calls: Tenant, every: timedelta) -> None:
        super().__init__()
        self._onefold = onefold
        self._calls = calls
        self._every = every

    def read(self) -> Overview:
        """Everything that is shown."""
        return look(self._onefold, self._calls)

    def compose(self) -> ComposeResult:
        """A line, three tables, a message and the keys."""
        yield Static(id="headline", markup=False)
        yield Rows(QUEUE_COLUMNS, id="queues")
        yield Rows(WORKER_COLUMNS, id="workers")
        yield Rows(ERROR_COLUMNS, id="errors")
        yield Static(id="message", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to refresh."""
        self.refresh_tables()
        self.set_interval(self._every.total_seconds(), self.refresh_tables)

    @work(thread=True, exclusive=True, group="refresh")
    def refresh_tables(self) -> None:
        """Read everything in a thread, and show it; an error is shown and the next try follows."""
        seen = self._tried(self.read)
        if seen is not None:
            self.call_from_thread(self._show, seen)

    def _tried(self, call: Callable[[], T]) -> T | None:
        """In a thread: the result of a call, or its error as the message."""
        try:
            return call()
        except OnefoldError as error:
            self.call_from_thread(self._say, str(error))
            return None

    def _show(self, seen: Overview) -> None:
        base = self.screen_stack[0]
        base.query_one("#headline", Static).update(seen.headline)
        base.query_one("#queues", Rows).show(queue.cells for queue in seen.queues)
        base.query_one("#workers", Rows).show(seen.worker_rows)
        base.query_one("#errors", Rows).show(seen.error_rows)

    def _say(self, sentence: str) -> None:
        self.screen_stack[0].query_one("#message", Static).update(sentence)

    def _chosen(self) -> tuple[str, str] | None:
        """The table with the focus, and the key of its row."""
        table = self.focused
        if not isinstance(table, Rows) or table.chosen is None or table.id is None:
            return None
        return table.id, table.chosen

    def action_pause(self) -> None:
        """Pause the queue under the cursor, or resume it."""
        match self._chosen():
            case "queues", queue:
                self._switch(queue)
            case _:
                self._say("Choose a queue to pause.")

    @work(thread=True)
    def _switch(self, queue: str) -> None:
        def switch() -> str:
            found = {one.full_name: one for one in self._onefold.queues.find()}
            if queue in found and found[queue].paused:
                self._onefold.queues.resume(queue)
                return f"The queue {queue} is resumed."
            self._onefold.queues.pause(queue)
            return f"The queue {queue} is paused."

        self._do(switch)

    def _do(self, call: Callable[[], str]) -> None:
        """In a thread: do something, say it, and show the result."""
        sentence = self._tried(call)
        if sentence is not None:
            self.call_from_thread(self._say, sentence)
            self.call_from_thread(self.refresh_tables)

    def action_replay(self) -> None:
        """Run the job under the cursor now, or the dead letters of a queue after a question."""
        match self._chosen():
            case "queues", queue:

                def answered(yes: bool | None) -> None:  # noqa: FBT001 - called by textual
                    if yes:
                        self._replay_queue(queue)

                self.push_screen(Confirmation(f"Replay all dead letters of {queue}?"), answered)
            case "errors" | "found", job_id:
                self._run_job(job_id)
            case _:
                self._say("Choose a queue or a job to replay.")

    @work(thread=True)
    def _replay_queue(self, queue: str) -> None:
        self._do(lambda: f"Replayed {self._calls.dead.replay(queue=queue).inserted}.")

    @work(thread=True)
    def _run_job(self, job_id: str) -> None:
        def run() -> str:
            job = self._calls.get(job_id)
            if job is not None and job.state in {"dead", "cancelled"}:
                answer = self._calls.replay(job_id)
                held = f"Not replayed: {answer.id} holds its key."
                return held if answer.duplicate else f"Replayed {job_id}."
            due = self._calls.run_now(job_id)
            return f"{job_id} is due now." if due else f"{job_id} is due or running already."

        self._do(run)

    def on_data_table_row_selected(self) -> None:
        """Enter, or a click."""
        self.action_inspect()

    def action_inspect(self) -> None:
        """Show the jobs of the queue, or the job, under the cursor."""
        match self._chosen():
            case "queues", queue:
                self._list(f"Jobs of {queue}", lambda: self._find(queue=queue))
            case "errors" | "found", job_id:
                self._show_job(job_id)
            case _:
                self._say("Choose a queue or a job to inspect.")

    @work(thread=True)
    def _show_job(self, job_id: str) -> None:
        def read() -> str:
            job = self._calls.get(job_id)
            if job is None:
                raise JobNotFound(job_id)
            return "\n".join(job_lines(job, self._calls.deliveries.why(job_id)))

        if (text := self._tried(read)) is not None:
            self.call_from_thread(self.push_screen, Details(text))

    def action_search(self) -> None:
        """Ask for a text, and show the jobs that have it."""

        def entered(text: str | None) -> None:
            if text:
                self._list(f"Jobs with {text}", lambda: self._searched(text))

        self.push_screen(Search(), entered)

    @work(thread=True)
    def _list(self, title: str, find: Callable[[], Sequence[Job]]) -> None:
        found = self._tried(find)
        if found is not None:
            more = f"{title}: {len(found)}{' or more' if len(found) >= FOUND else ''}"
            self.call_from_thread(self.push_screen, Found(more, found))

    def _searched(self, text: str) -> Sequence[Job]:
        try:
            job = self._calls.get(text)
        except InvalidInput:  # not an id
            found = {job.id: job for name in FILTERS for job in self._matching(name, text)}
            return [found[job_id] for job_id in sorted(found, reverse=True)]
        return [] if job is None else [job]

    def _matching(self, name: str, text: str) -> Sequence[Job]:
        try:
            return self._find(**{name: text})
        except InvalidInput:  # a key may have characters that a kind cannot have
            return []

    def _find(self, **filters: Any) -> Sequence[Job]:
        return self._calls.find(limit=FOUND, newest_first=True, **filters).jobs


def _job_cells(job: Job) -> tuple[object, ...]:
    return (job.id, job.kind, job.state, problem(job.error, length=SHORT))
