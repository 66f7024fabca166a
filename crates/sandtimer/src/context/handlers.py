"""When handlers of signals are called: while a cell runs. One that raises elsewhere would interrupt the sending of an answer, or take the
place of the next cell; so it is deferred until the next cell begins, or until what is being sent is whole."""

import _thread
import functools
import signal


class Handlers:
    def __init__(self):
        # A cell runs.
        self.in_cell = False
        self.may_run = False
        self.deferred = []

    def call_or_defer(self, handler, number, frame):
        if self.may_run:
            handler(number, frame)
        else:
            self.deferred.append((handler, number))

    def interrupt(self, number, frame):
        """The handler of SIGINT. One that comes when no cell runs is too late for the last one."""
        if self.in_cell:
            self.call_or_defer(raise_interrupt, number, frame)

    def begin_cell(self):
        """Calls those that were deferred since the last cell. What they raise is told on stderr, and the cell is executed."""
        self.in_cell = self.may_run = True
        deferred, self.deferred = self.deferred, []
        for handler, number in deferred:
            try:
                handler(number, sys._getframe())
            except BaseException:
                traceback.print_exc()

    def end_cell(self):
        self.in_cell = self.may_run = False
        # An interrupt is not for the next cell.
        self.deferred = [entry for entry in self.deferred if entry[0] is not raise_interrupt]

    def leave(self):
        """In a process that the code has forked: there are no cells."""
        self.in_cell = self.may_run = True
        self.deferred.clear()

    def pause(self):
        """Defers them until `resume`. Returns whether they could run."""
        could_run, self.may_run = self.may_run, False
        return could_run

    def resume(self):
        self.may_run = True
        while self.deferred:
            self.call_or_defer(*self.deferred.pop(0), sys._getframe())


def raise_interrupt(*_):
    raise KeyboardInterrupt


class DeferringHandler:
    """A handler that cells have set."""

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        # A pre-warm script runs before there is a context.
        if current is None:
            self.handler(number, frame)
        else:
            current.handlers.call_or_defer(self.handler, number, frame)


def call_handlers_in_cells():
    """Has the handlers that are set from now on called while a cell runs. `signal.getsignal` returns the handler that the cell has set."""
    set_python, get_python = signal.signal, signal.getsignal

    def own(handler):
        return handler.handler if isinstance(handler, DeferringHandler) else handler

    def set_own(signalnum, handler):
        return own(set_python(signalnum, DeferringHandler(handler) if callable(handler) else handler))

    def get_own(signalnum):
        return own(get_python(signalnum))

    signal.signal = functools.update_wrapper(set_own, set_python)
    signal.getsignal = functools.update_wrapper(get_own, get_python)


call_handlers_in_cells()
