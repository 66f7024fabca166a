"""When handlers of signals are called: while a cell runs. One that raises elsewhere would do so where an answer is sent, or in place of the
next cell; so it waits for the next cell to begin, or for what is being sent to be whole."""

import _thread
import functools
import signal


class Handlers:
    def __init__(self):
        # A cell runs.
        self.in_cell = False
        self.may_run = False
        self.waiting = []

    def call(self, handler, number):
        if self.may_run:
            handler(number, sys._getframe())
        else:
            self.waiting.append((handler, number))

    def interrupt(self, number, frame):
        """The handler of SIGINT. One that comes when no cell runs is too late for the last one."""
        if self.in_cell:
            self.call(raise_interrupt, number)

    def begin_cell(self):
        self.in_cell = True
        self.resume()

    def end_cell(self):
        self.in_cell = self.may_run = False

    def pause(self):
        """Has them wait until `resume`. False where they did before."""
        could_run, self.may_run = self.may_run, False
        return could_run

    def resume(self):
        self.may_run = True
        while self.waiting:
            self.call(*self.waiting.pop(0))


def raise_interrupt(*_):
    raise KeyboardInterrupt


class InCells:
    """A handler that cells have set."""

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        current.handlers.call(self.handler, number)


def call_handlers_in_cells():
    """Has the handlers that are set from now on called while a cell runs. What tells of them tells what was set."""
    set_python, get_python = signal.signal, signal.getsignal

    def own(handler):
        return handler.handler if isinstance(handler, InCells) else handler

    def set_own(signalnum, handler):
        return own(set_python(signalnum, InCells(handler) if callable(handler) else handler))

    def get_own(signalnum):
        return own(get_python(signalnum))

    signal.signal = functools.update_wrapper(set_own, set_python)
    signal.getsignal = functools.update_wrapper(get_own, get_python)


call_handlers_in_cells()
