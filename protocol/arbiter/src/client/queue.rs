//! Packet queues in a pool of cells, one cell per timeslot.

use alloc::vec::Vec;

use onepipe_wire::write_packet;

/// The index of no cell.
const NIL: u32 = u32::MAX;

/// The queue of one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    cells: u32,
}

impl Queue {
    pub const EMPTY: Self = Self { head: NIL, tail: NIL, cells: 0 };

    /// Returns the number of timeslots that the waiting packets fill.
    #[inline]
    pub fn cells(&self) -> u32 {
        self.cells
    }
}

/// The cell pool of all queues.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cells {
    bytes: Vec<u8>,
    /// Bytes per cell.
    size: usize,
    used: Vec<u16>,
    next: Vec<u32>,
    free: u32,
    waiting: u32,
}

impl Cells {
    /// Creates `count` free cells of `size` bytes.
    pub fn new(count: u32, size: usize) -> Self {
        let next = (1..count).chain([NIL]).collect();
        Self {
            bytes: alloc::vec![0; count as usize * size],
            size,
            used: alloc::vec![0; count as usize],
            next,
            free: if count == 0 { NIL } else { 0 },
            waiting: 0,
        }
    }

    /// Asserts that each cell is in one queue, or free.
    pub fn check_invariants(&self, queues: impl Iterator<Item = Queue>) {
        let mut waiting = 0;
        for queue in queues {
            assert_eq!(queue.head == NIL, queue.cells == 0, "an empty queue has no cell");
            assert_eq!(queue.tail == NIL, queue.cells == 0, "an empty queue has no cell");
            let (count, last) = self.count_from(queue.head);
            assert_eq!((count, last), (queue.cells, queue.tail), "the cells of a queue");
            waiting += count;
        }
        assert_eq!(waiting, self.waiting, "the cells in use");
        let (free, _) = self.count_from(self.free);
        assert_eq!(free + waiting, self.next.len() as u32, "each cell is in use or free");
        assert!(self.used.iter().all(|used| usize::from(*used) <= self.size), "a cell is filled");
    }

    /// Returns the number of cells in a list, and the last one.
    fn count_from(&self, head: u32) -> (u32, u32) {
        let (mut count, mut last, mut cell) = (0, NIL, head);
        while cell != NIL {
            count += 1;
            assert!(count <= self.next.len() as u32, "a list of cells has no cycle");
            (last, cell) = (cell, self.next[cell as usize]);
        }
        (count, last)
    }

    /// Returns the number of cells in use.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    //= spec/arbiter.md#R6
    /// Appends a packet to the last cell of the queue if it fits, so that small packets share a
    /// timeslot, or else to a new cell. Returns false if no cell is free or the queue has reached
    /// its limit.
    pub fn append(&mut self, queue: &mut Queue, packet: &[u8], limit: u32) -> bool {
        if queue.tail != NIL && self.append_to_cell(queue.tail, packet) {
            return true;
        }
        if queue.cells >= limit || self.free == NIL {
            return false;
        }
        let cell = self.free;
        self.used[cell as usize] = 0;
        if !self.append_to_cell(cell, packet) {
            return false;
        }
        self.free = core::mem::replace(&mut self.next[cell as usize], NIL);
        match queue.tail {
            NIL => queue.head = cell,
            tail => self.next[tail as usize] = cell,
        }
        queue.tail = cell;
        queue.cells += 1;
        self.waiting += 1;
        true
    }

    fn append_to_cell(&mut self, cell: u32, packet: &[u8]) -> bool {
        let (begin, used) = (cell as usize * self.size, &mut self.used[cell as usize]);
        let buffer = &mut self.bytes[begin + usize::from(*used)..begin + self.size];
        let bytes = write_packet(buffer, packet);
        *used += bytes.unwrap_or_default() as u16;
        bytes.is_some()
    }

    /// Copies the packets of the first cell into the buffer and frees the cell. Returns their
    /// length.
    pub fn take(&mut self, queue: &mut Queue, buffer: &mut [u8]) -> Option<usize> {
        let cell = queue.head;
        if cell == NIL {
            return None;
        }
        let (begin, bytes) = (cell as usize * self.size, usize::from(self.used[cell as usize]));
        buffer[..bytes].copy_from_slice(&self.bytes[begin..begin + bytes]);
        queue.head = core::mem::replace(&mut self.next[cell as usize], self.free);
        self.free = cell;
        if queue.head == NIL {
            queue.tail = NIL;
        }
        queue.cells -= 1;
        self.waiting -= 1;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_share_a_cell_in_order() {
        let mut cells = Cells::new(3, 10);
        let (mut one, mut other) = (Queue::EMPTY, Queue::EMPTY);
        let mut append_to_cell = |queue: &mut Queue, packet: &[u8]| cells.append(queue, packet, 2);
        assert!(
            append_to_cell(&mut one, b"abc")
                && append_to_cell(&mut one, b"de")
                && append_to_cell(&mut one, b"fgh")
        );
        assert!(!append_to_cell(&mut one, b"12345678"), "its two cells are in use");
        assert!(append_to_cell(&mut one, b""), "fits the last cell");
        assert!(
            append_to_cell(&mut other, b"12345678") && !append_to_cell(&mut other, b"x"),
            "no free cell"
        );
        assert_eq!((one.cells(), other.cells(), cells.waiting()), (2, 1, 3));
        let mut buffer = [0; 10];
        assert_eq!(cells.take(&mut one, &mut buffer), Some(9));
        assert_eq!(&buffer[..9], b"\0\x03abc\0\x02de");
        assert!(cells.append(&mut other, b"x", 2), "a cell is free again");
        assert_eq!(cells.take(&mut one, &mut buffer), Some(7));
        assert_eq!(&buffer[..7], b"\0\x03fgh\0\0");
        assert_eq!((cells.take(&mut one, &mut buffer), cells.waiting()), (None, 2));
        assert!(!cells.append(&mut one, b"123456789", 2), "longer than a cell");
        assert_eq!(cells.take(&mut other, &mut buffer), Some(10));
        assert_eq!(cells.take(&mut other, &mut buffer), Some(3));
    }
}
