//! The links between lives in flat arrays, kept up to date by what changes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use onepipe_base::{Address, Incarnation, Instance};
use onepipe_wire::Side;

use super::opposite;

/// What a node says of its links to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum View {
    /// Nothing yet.
    Unknown,
    /// It was up, and is not.
    Down,
    /// It is up.
    Up,
}

/// The links from one node to another on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arc {
    /// The other node.
    pub to: usize,
    /// Where they lead, seen from here.
    pub side: Side,
    /// What this node says.
    pub own: View,
    /// What the other says.
    pub other: View,
}

impl Arc {
    /// Both ends agree that it is up, or one says so and the other knows nothing yet.
    pub(crate) fn is_up(&self) -> bool {
        self.own != View::Down && self.other != View::Down
    }
}

/// No path leads there.
pub(super) const UNREACHABLE: u32 = u32::MAX;

/// One life, as the arrays have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vertex {
    pub instance: Instance,
    /// Whether the graph knows it; else others only speak of it as they did when it did.
    pub is_present: bool,
    /// It counts as dead, whatever its links.
    pub is_dead: bool,
    /// The controller sits there.
    pub is_attached: bool,
    /// It had a path at the last repair.
    pub is_correct: bool,
    /// How far the controller is, climbing all the way from it; in links.
    pub uphill_distance: u32,
    /// The same for paths that may go down at their end; at most one more than `uphill_distance`.
    pub distance: u32,
    /// Ascending by side and the other node.
    pub arcs: Vec<Arc>,
    /// Switches that have it at a lower port.
    uplink_count: u32,
}

impl Vertex {
    /// Whether paths may lead through or to it.
    pub fn is_open(&self) -> bool {
        self.is_present && !self.is_dead
    }

    pub fn is_switch(&self) -> bool {
        matches!(self.instance.address, Address::Switch(_))
    }

    /// Its links on one side.
    pub fn arcs_on(&self, side: Side) -> &[Arc] {
        let first = self.arcs.partition_point(|arc| arc.side < side);
        let rest = &self.arcs[first..];
        &rest[..rest.partition_point(|arc| arc.side == side)]
    }

    fn is_duplicate(&self) -> bool {
        self.is_present && !self.is_switch() && self.uplink_count > 1
    }
}

/// All lives that anybody has spoken of, densely numbered, and the links between them, each of
/// them noted at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Adjacency {
    pub(super) vertices: Vec<Vertex>,
    by_instance: BTreeMap<Instance, usize>,
    /// Numbers of nobody.
    free: Vec<usize>,
    /// Numbers of those who have gone since the last repair.
    vacated: Vec<usize>,
    /// Where paths may have come or gone since the last repair.
    pub(super) touched: BTreeSet<usize>,
    /// Where any may have come, among these.
    pub(super) gained: BTreeSet<usize>,
    /// Of whom it is to be found out anew whether they count as dead.
    dirty: BTreeSet<usize>,
    duplicates: usize,
    /// Correct lives, and the processes among them, as of the last repair.
    correct: usize,
    correct_processes: usize,
    /// Links and states of nodes that repairs have looked at.
    pub(super) visits: u64,
}

impl Adjacency {
    /// The number of a life that the graph knows.
    pub(crate) fn index(&self, instance: Instance) -> Option<usize> {
        self.by_instance.get(&instance).copied().filter(|at| self.vertices[*at].is_present)
    }

    pub(crate) fn instance(&self, at: usize) -> Instance {
        self.vertices[at].instance
    }

    /// The links of `at` to lives that the graph knows.
    pub(crate) fn arcs(&self, at: usize) -> impl Iterator<Item = Arc> {
        self.vertices[at].arcs.iter().copied().filter(|arc| self.vertices[arc.to].is_present)
    }

    pub(crate) fn is_switch(&self, at: usize) -> bool {
        self.vertices[at].is_switch()
    }

    pub(crate) fn is_present(&self, at: usize) -> bool {
        self.vertices[at].is_present
    }

    /// Whether it had a path to the controller at the last repair.
    pub(crate) fn is_correct(&self, at: usize) -> bool {
        self.vertices[at].is_correct
    }

    /// Whether anybody lists `instance`, which the graph need not know any more, as up.
    pub(crate) fn is_listed(&self, instance: Instance) -> bool {
        self.listing(instance).next().is_some()
    }

    /// Whether a correct node does.
    pub(crate) fn is_listed_by_correct(&self, instance: Instance) -> bool {
        self.listing(instance).any(|at| self.vertices[at].is_correct)
    }

    fn listing(&self, instance: Instance) -> impl Iterator<Item = usize> {
        let arcs = self.by_instance.get(&instance).map(|at| self.vertices[*at].arcs.iter());
        let up = arcs.into_iter().flatten().filter(|arc| arc.other == View::Up);
        up.map(|arc| arc.to)
    }

    /// How many had one.
    pub(crate) fn correct_count(&self) -> usize {
        self.correct
    }

    /// How many processes among them.
    pub(crate) fn correct_process_count(&self) -> usize {
        self.correct_processes
    }

    /// How many processes more than one switch has at a lower port.
    pub(crate) fn duplicates(&self) -> usize {
        self.duplicates
    }

    /// How many states of nodes, and links, have been looked at in all.
    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    /// Who has later lives of the same address than this one, and is known.
    pub(crate) fn has_successor(&self, instance: Instance) -> bool {
        let last = Instance { incarnation: Incarnation(u32::MAX), ..instance };
        let mut later = self.by_instance.range((Bound::Excluded(instance), Bound::Included(last)));
        later.any(|(_, at)| self.vertices[*at].is_present)
    }

    /// All lives that the graph knows and their numbers, ascending.
    pub(super) fn indices(&self) -> impl Iterator<Item = (Instance, usize)> {
        let present = self.by_instance.iter().filter(|(_, at)| self.vertices[**at].is_present);
        present.map(|(instance, at)| (*instance, *at))
    }

    /// The graph knows `instance` from now on. Answers its number.
    pub(super) fn insert(&mut self, instance: Instance) -> usize {
        let at = self.index_or_insert(instance);
        self.update_vertex(at, |vertex| vertex.is_present = true);
        self.touch(at, true);
        self.dirty.insert(at);
        at
    }

    /// The graph knows `instance` no more: it says nothing of anybody. What others say of it stays.
    pub(super) fn remove(&mut self, instance: Instance) {
        let Some(at) = self.index(instance) else { return };
        for arc in self.vertices[at].arcs.clone() {
            self.set_view(at, arc.to, arc.side, View::Unknown);
        }
        self.set_correct(at, false);
        self.update_vertex(at, |vertex| (vertex.is_present, vertex.is_attached) = (false, false));
        self.touch(at, false);
        self.dirty.insert(at);
        self.vacated.push(at);
    }

    /// What `from`, which is known, says of its links to `to` on `side`.
    pub(super) fn set_view_of(&mut self, from: usize, to: Instance, side: Side, view: View) {
        let to = self.index_or_insert(to);
        self.set_view(from, to, side, view);
    }

    /// The controller sits at `instance`, or does not any more.
    pub(super) fn attach(&mut self, instance: Instance, is_attached: bool) {
        if let Some(at) = self.index(instance) {
            self.vertices[at].is_attached = is_attached;
            self.touch(at, is_attached);
        }
    }

    /// The numbers of all lives of `address`, each with those of all to whom it is or was linked.
    pub(super) fn with_neighbours(&self, address: Address) -> impl Iterator<Item = (usize, usize)> {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances = self.by_instance.range(instance(0)..=instance(u32::MAX)).map(|(_, at)| *at);
        instances.flat_map(|at| self.vertices[at].arcs.iter().map(move |arc| (at, arc.to)))
    }

    /// It is to be found out anew whether the lives of `address` count as dead.
    pub(super) fn mark_dirty(&mut self, address: Address) {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances = self.by_instance.range(instance(0)..=instance(u32::MAX));
        self.dirty.extend(instances.map(|(_, at)| at));
    }

    /// The same of everybody.
    pub(super) fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.by_instance.values());
    }

    pub(super) fn take_dirty(&mut self) -> BTreeSet<usize> {
        core::mem::take(&mut self.dirty)
    }

    /// Whether `at` counts as dead.
    pub(super) fn set_dead(&mut self, at: usize, is_dead: bool) {
        if self.vertices[at].is_dead != is_dead {
            self.vertices[at].is_dead = is_dead;
            self.touch(at, !is_dead);
        }
    }

    /// Paths of `at` may have gone, or come.
    fn touch(&mut self, at: usize, is_gain: bool) {
        self.touched.insert(at);
        if is_gain {
            self.gained.insert(at);
        }
    }

    /// Whether `at` is connected. Answers whether that is news.
    pub(super) fn set_correct(&mut self, at: usize, is_correct: bool) -> bool {
        let vertex = &mut self.vertices[at];
        let has_changed = core::mem::replace(&mut vertex.is_correct, is_correct) != is_correct;
        let process = usize::from(has_changed && !vertex.is_switch());
        if is_correct {
            (self.correct, self.correct_processes) =
                (self.correct + usize::from(has_changed), self.correct_processes + process);
        } else {
            (self.correct, self.correct_processes) =
                (self.correct - usize::from(has_changed), self.correct_processes - process);
        }
        has_changed
    }

    /// Gives the numbers of those who have gone to others.
    pub(super) fn recycle_indices(&mut self) {
        for at in core::mem::take(&mut self.vacated) {
            let vertex = &self.vertices[at];
            let is_free = !vertex.is_present && vertex.arcs.is_empty();
            if is_free && self.by_instance.get(&vertex.instance) == Some(&at) {
                self.by_instance.remove(&vertex.instance);
                self.free.push(at);
            }
        }
    }

    /// The number of `instance`, which it gets if it has none.
    fn index_or_insert(&mut self, instance: Instance) -> usize {
        if let Some(at) = self.by_instance.get(&instance) {
            return *at;
        }
        let vertex = Vertex {
            instance,
            is_present: false,
            is_dead: false,
            is_attached: false,
            is_correct: false,
            uphill_distance: UNREACHABLE,
            distance: UNREACHABLE,
            arcs: Vec::new(),
            uplink_count: 0,
        };
        let at = self.free.pop().unwrap_or(self.vertices.len());
        if at == self.vertices.len() {
            self.vertices.push(vertex);
        } else {
            self.vertices[at] = vertex;
        }
        self.by_instance.insert(instance, at);
        at
    }

    fn set_view(&mut self, from: usize, to: usize, side: Side, view: View) {
        let (was_up, is_up) = self.update_arc(from, to, side, |arc| arc.own = view);
        self.update_arc(to, from, opposite(side), |arc| arc.other = view);
        if was_up != is_up {
            self.touch(from, is_up);
            self.touch(to, is_up);
        }
        if view == View::Up && self.vertices[to].is_dead {
            self.dirty.insert(to);
        }
        if !self.vertices[to].is_present && self.vertices[to].arcs.is_empty() {
            self.vacated.push(to);
        }
    }

    /// Changes what `at` knows of a link; one of which nobody says anything is forgotten. Answers
    /// whether it was up and whether it is.
    fn update_arc(
        &mut self,
        at: usize,
        to: usize,
        side: Side,
        f: impl FnOnce(&mut Arc),
    ) -> (bool, bool) {
        self.update_vertex(at, |vertex| {
            let index = vertex.arcs.binary_search_by_key(&(side, to), |arc| (arc.side, arc.to));
            let unknown = Arc { to, side, own: View::Unknown, other: View::Unknown };
            let was = index.map_or(unknown, |index| vertex.arcs[index]);
            let mut arc = was;
            f(&mut arc);
            let is_known = (arc.own, arc.other) != (View::Unknown, View::Unknown);
            match index {
                Ok(index) if is_known => vertex.arcs[index] = arc,
                Ok(index) => drop(vertex.arcs.remove(index)),
                Err(index) if is_known => vertex.arcs.insert(index, arc),
                Err(_) => {}
            }
            let is_uplink = |arc: Arc| u32::from(arc.side == Side::Upper && arc.other == View::Up);
            vertex.uplink_count = vertex.uplink_count + is_uplink(arc) - is_uplink(was);
            (index.is_ok() && was.is_up(), is_known && arc.is_up())
        })
    }

    /// Changes a vertex, and keeps count of those that are at two places.
    fn update_vertex<R>(&mut self, at: usize, f: impl FnOnce(&mut Vertex) -> R) -> R {
        let vertex = &mut self.vertices[at];
        let was_duplicate = vertex.is_duplicate();
        let result = f(vertex);
        match (was_duplicate, vertex.is_duplicate()) {
            (false, true) => self.duplicates += 1,
            (true, false) => self.duplicates -= 1,
            _ => {}
        }
        result
    }
}
