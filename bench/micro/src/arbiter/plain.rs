//! Baselines: the same work, implemented plainly.

use onepipe_arbiter::{BATCH_SLOTS_MAX, Fabric, NO_DESTINATION, Paths, Schedule};

use super::{Routes, SlotAllocator};

/// Serves one packet of a pair per visit, least recently served pair first, with one list for each
/// timeslot of last service.
pub(super) struct PlainAllocator {
    nodes: usize,
    /// Backlog of each pair, in packets.
    backlogs: Vec<u32>,
    waiting: Vec<(u16, u16)>,
    /// Pairs served in this batch, by timeslot.
    served: Vec<Vec<(u16, u16)>>,
    sends: Vec<u64>,
    receives: Vec<u64>,
    /// One bit for each timeslot of a batch.
    slots_mask: u64,
}

impl PlainAllocator {
    pub fn new(nodes: u32, batch_slots: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            nodes,
            backlogs: vec![0; nodes * nodes],
            waiting: Vec::new(),
            served: vec![Vec::new(); batch_slots as usize],
            sends: vec![0; nodes],
            receives: vec![0; nodes],
            slots_mask: u64::MAX >> (64 - batch_slots),
        }
    }

    /// Returns the first timeslot in which both endpoints are free.
    fn serve(&mut self, src: u16, dst: u16) -> Option<usize> {
        let (sends, receives) =
            (&mut self.sends[usize::from(src)], &mut self.receives[usize::from(dst)]);
        let free = self.slots_mask & !*sends & !*receives;
        let slot = free.trailing_zeros() as usize;
        (free != 0).then(|| {
            *sends |= 1 << slot;
            *receives |= 1 << slot;
            slot
        })
    }
}

impl SlotAllocator for PlainAllocator {
    fn request(&mut self, src: u32, dst: u32, slots: u32) -> anyhow::Result<()> {
        let backlog = &mut self.backlogs[src as usize * self.nodes + dst as usize];
        if *backlog == 0 {
            self.waiting.push((src as u16, dst as u16));
        }
        *backlog += slots;
        Ok(())
    }

    fn allocate(&mut self, schedule: &mut Schedule) -> u64 {
        self.sends.fill(0);
        self.receives.fill(0);
        schedule.clear();
        let (mut granted, mut remaining) = (0, Vec::new());
        let mut list = std::mem::take(&mut self.waiting);
        for turn in 0..=self.served.len() {
            for &(src, dst) in &list {
                let Some(slot) = self.serve(src, dst) else {
                    remaining.push((src, dst));
                    continue;
                };
                schedule.put(u32::from(src), slot as u32, dst);
                granted += 1;
                let backlog = &mut self.backlogs[usize::from(src) * self.nodes + usize::from(dst)];
                *backlog -= 1;
                if *backlog > 0 {
                    // The next visit comes after this one, whichever timeslot was free.
                    let next = slot.max(turn).min(self.served.len() - 1);
                    match turn < self.served.len() {
                        true => self.served[next].push((src, dst)),
                        false => remaining.push((src, dst)),
                    }
                }
            }
            if let Some(next) = self.served.get_mut(turn) {
                list = std::mem::take(next);
            }
        }
        self.waiting = remaining;
        granted
    }
}

/// Textbook edge colouring: a table holds the edge of each colour at each rack, and free colours
/// are searched linearly.
pub(super) struct PlainPaths {
    fabric: Fabric,
    colours: usize,
    /// Edge by side, rack and colour.
    table: Vec<Option<usize>>,
    edges: Vec<PlainEdge>,
}

#[derive(Clone, Copy)]
struct PlainEdge {
    src: usize,
    racks: [usize; 2],
    colour: usize,
}

impl PlainPaths {
    pub fn new(fabric: Fabric) -> Self {
        let colours = fabric.rack_nodes.next_multiple_of(fabric.paths) as usize;
        let racks = fabric.nodes.div_ceil(fabric.rack_nodes) as usize;
        Self { fabric, colours, table: vec![None; 2 * racks * colours], edges: Vec::new() }
    }

    fn table_index(&self, side: usize, rack: usize, colour: usize) -> usize {
        (2 * rack + side) * self.colours + colour
    }

    fn free_colour(&self, side: usize, rack: usize) -> Option<usize> {
        (0..self.colours).find(|colour| self.table[self.table_index(side, rack, *colour)].is_none())
    }

    pub fn assign(&mut self, schedule: &Schedule, routes: &mut Routes) -> u32 {
        let mut without_path = 0;
        for slot in 0..BATCH_SLOTS_MAX as usize {
            self.table.fill(None);
            self.edges.clear();
            for (src, row) in routes.iter_mut().enumerate() {
                row[slot] = Paths::NONE;
                let dst = schedule.of(src as u32)[slot];
                let racks =
                    [src, usize::from(dst)].map(|node| node / self.fabric.rack_nodes as usize);
                if dst != NO_DESTINATION && racks[0] != racks[1] {
                    self.edges.push(PlainEdge { src, racks, colour: 0 });
                }
            }
            for edge in 0..self.edges.len() {
                without_path += u32::from(self.assign_colour(edge).is_none());
            }
            for edge in &self.edges {
                routes[edge.src][slot] = (edge.colour % self.fabric.paths as usize) as u8;
            }
        }
        without_path
    }

    /// Gives an edge a colour that is free at both racks. If there is none, frees a colour at the
    /// second rack by a flip.
    fn assign_colour(&mut self, edge: usize) -> Option<()> {
        let racks = self.edges[edge].racks;
        let one = self.free_colour(0, racks[0])?;
        if self.table[self.table_index(1, racks[1], one)].is_some() {
            let other = self.free_colour(1, racks[1])?;
            self.flip(racks[1], one, other);
        }
        self.colour_edge(edge, one);
        Some(())
    }

    fn colour_edge(&mut self, edge: usize, colour: usize) {
        self.edges[edge].colour = colour;
        for side in [0, 1] {
            let table_index = self.table_index(side, self.edges[edge].racks[side], colour);
            self.table[table_index] = Some(edge);
        }
    }

    /// Swaps colours `one` and `other` along the alternating path that begins at the second side of
    /// rack `start`.
    fn flip(&mut self, start: usize, one: usize, other: usize) {
        let mut chain = Vec::new();
        let (mut side, mut rack, mut colour) = (1, start, one);
        while let Some(edge) = self.table[self.table_index(side, rack, colour)] {
            chain.push(edge);
            side = 1 - side;
            rack = self.edges[edge].racks[side];
            colour = one + other - colour;
        }
        for &edge in &chain {
            for side in [0, 1] {
                let PlainEdge { racks, colour, .. } = self.edges[edge];
                let table_index = self.table_index(side, racks[side], colour);
                self.table[table_index] = None;
            }
        }
        for edge in chain {
            self.colour_edge(edge, one + other - self.edges[edge].colour);
        }
    }
}
