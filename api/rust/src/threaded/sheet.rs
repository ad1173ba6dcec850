//! Events on their way from the driving thread to the caller's thread, many at a time.

use std::collections::VecDeque;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::Event;
use crate::node::{Node, Told};

/// Sheets in circulation.
const SHEETS_MAX: usize = 64;
/// A sheet is full with this many events, …
const EVENTS_MAX: usize = 1024;
/// … or this many bytes; a longer message has one to itself.
const LEN_MAX: usize = 64 << 10;
/// A sheet with more memory than this gives it back before it is used again.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Events in order, the payloads of their messages one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    events: Vec<Event<usize>>,
    bytes: Vec<u8>,
}

impl Sheet {
    fn is_full(&self) -> bool {
        self.events.len() >= EVENTS_MAX || self.bytes.len() >= LEN_MAX
    }

    fn wipe(&mut self) {
        self.events.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
    }

    #[inline]
    fn write(&mut self, node: &mut Node, told: Told) {
        node.show(told, &mut |event| {
            self.events.push(event.map(|payload| {
                self.bytes.extend_from_slice(payload);
                payload.len()
            }));
        });
    }
}

/// The driving thread's end.
#[derive(Debug)]
pub(crate) struct Press {
    sheets: Producer<Sheet>,
    blank: Consumer<Sheet>,
    current: Option<Sheet>,
    /// Events that had no sheet; their messages stay in the receive buffer meanwhile, so that the
    /// senders' windows close.
    held: VecDeque<Told>,
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct Reader {
    sheets: Consumer<Sheet>,
    blank: Producer<Sheet>,
    current: Sheet,
    /// The next event of the current sheet, and where its payload begins.
    event: usize,
    byte: usize,
}

pub(crate) fn press() -> (Press, Reader) {
    // Two more: the one the reader begins with, and the last.
    let (sheets, printed) = RingBuffer::new(SHEETS_MAX + 2);
    let (mut returned, blank) = RingBuffer::new(SHEETS_MAX + 2);
    for _ in 0..SHEETS_MAX {
        // It fits: there is room for two more.
        let _ = returned.push(Sheet::default());
    }
    let press = Press { sheets, blank, current: None, held: VecDeque::new() };
    let current = Sheet::default();
    (press, Reader { sheets: printed, blank: returned, current, event: 0, byte: 0 })
}

impl Press {
    /// Puts an event on a sheet, or aside when there is none.
    #[inline]
    pub(crate) fn take(&mut self, node: &mut Node, told: Told) {
        if self.held.is_empty()
            && let Some(sheet) = self.sheet()
        {
            return sheet.write(node, told);
        }
        self.held.push_back(told);
    }

    /// Puts on sheets what had to wait. Answers whether anything was.
    pub(crate) fn catch_up(&mut self, node: &mut Node) -> bool {
        let before = self.held.len();
        while let Some(told) = self.held.pop_front() {
            let Some(sheet) = self.sheet() else {
                self.held.push_front(told);
                break;
            };
            sheet.write(node, told);
        }
        self.held.len() < before
    }

    /// Hands over the sheet under way if the reader has nothing else to read, or if `is_now`.
    /// Answers whether it did.
    #[inline]
    pub(crate) fn hand_over(&mut self, is_now: bool) -> bool {
        let is_wanted = is_now || self.sheets.slots() == self.sheets.buffer().capacity();
        match self.current.take() {
            Some(sheet) if is_wanted && !sheet.events.is_empty() => self.push(sheet),
            other => {
                self.current = other;
                false
            }
        }
    }

    /// Whether events wait for a sheet, and whether there is one.
    pub(crate) fn lacks_sheets(&self) -> (bool, bool) {
        (!self.held.is_empty(), !self.blank.is_empty())
    }

    /// Hands over everything, however much.
    pub(crate) fn close(mut self, node: &mut Node) {
        let mut last = self.current.take().unwrap_or_default();
        for told in std::mem::take(&mut self.held) {
            last.write(node, told);
        }
        self.push(last);
    }

    #[inline]
    fn sheet(&mut self) -> Option<&mut Sheet> {
        if let Some(full) = self.current.take_if(|sheet| sheet.is_full()) {
            self.push(full);
        }
        if self.current.is_none() {
            self.current = self.blank.pop().ok();
        }
        self.current.as_mut()
    }

    fn push(&mut self, sheet: Sheet) -> bool {
        let is_pushed = self.sheets.push(sheet).is_ok();
        debug_assert!(is_pushed, "the ring has room for all sheets");
        is_pushed
    }
}

impl Reader {
    /// Whether there is anything to read.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.event < self.current.events.len() || !self.sheets.is_empty()
    }

    /// The next event, read by `read`. Answers beside it whether a sheet was given back.
    #[inline]
    pub(crate) fn next<R>(&mut self, read: impl FnOnce(Event<&[u8]>) -> R) -> (Option<R>, bool) {
        let is_turned = self.event == self.current.events.len();
        if is_turned && !self.turn_over() {
            return (None, false);
        }
        let bytes = &self.current.bytes[self.byte..];
        let mut length = 0;
        let event = self.current.events[self.event].map(|bytes_of_it| {
            length = bytes_of_it;
            &bytes[..bytes_of_it]
        });
        self.event += 1;
        self.byte += length;
        (Some(read(event)), is_turned)
    }

    /// Gives the sheet that was read back and takes the next.
    fn turn_over(&mut self) -> bool {
        loop {
            let Ok(sheet) = self.sheets.pop() else { return false };
            let mut read = std::mem::replace(&mut self.current, sheet);
            (self.event, self.byte) = (0, 0);
            read.wipe();
            // Full only after the driving thread has ended.
            let _ = self.blank.push(read);
            if !self.current.events.is_empty() {
                return true;
            }
        }
    }
}
