//! The links between instances in dense arrays, updated incrementally.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use onepipe_base::{Address, Incarnation, Instance};
use onepipe_wire::Side;

use super::opposite;

/// What a node announces about its links to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum View {
    /// Nothing yet.
    Unknown,
    /// The link was up and is not any more.
    Down,
    /// The link is up.
    Up,
}

/// The links from one node to another on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arc {
    /// Index of the other node.
    pub to: usize,
    /// Side of this node on which they are.
    pub side: Side,
    /// The view of this node.
    pub own: View,
    /// The view of the other node.
    pub other: View,
}

impl Arc {
    /// Whether both ends list it as up, or one does and the other has announced nothing about it.
    pub(crate) fn is_up(&self) -> bool {
        self.own != View::Down && self.other != View::Down
    }
}

/// Distance of an instance without a path.
pub(super) const UNREACHABLE: u32 = u32::MAX;

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vertex {
    pub instance: Instance,
    /// Whether the graph contains it; otherwise only other nodes still mention it.
    pub is_present: bool,
    /// Whether it counts as dead, whatever its links.
    pub is_dead: bool,
    /// Whether the controller is attached to it.
    pub is_attached: bool,
    /// Whether it had a path at the last update.
    pub is_correct: bool,
    /// Number of links to the controller on a path that only climbs from the controller's
    /// attachment.
    pub uphill_distance: u32,
    /// As `uphill_distance`, but for any valley-free path, on which the turn counts as a link.
    /// At most one more than `uphill_distance`.
    pub distance: u32,
    /// In ascending order of side and other node.
    pub arcs: Vec<Arc>,
    /// Number of switches that list it at a lower port.
    uplink_count: u32,
}

impl Vertex {
    /// Whether paths may lead to or through it.
    pub fn is_open(&self) -> bool {
        self.is_present && !self.is_dead
    }

    pub fn is_switch(&self) -> bool {
        matches!(self.instance.address, Address::Switch(_))
    }

    /// Returns its links on one side.
    pub fn arcs_on(&self, side: Side) -> &[Arc] {
        let first = self.arcs.partition_point(|arc| arc.side < side);
        let rest = &self.arcs[first..];
        &rest[..rest.partition_point(|arc| arc.side == side)]
    }

    fn is_duplicate(&self) -> bool {
        self.is_present && !self.is_switch() && self.uplink_count > 1
    }
}

/// All instances that any node mentions, with dense indices, and the links between them; each link
/// is stored at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Adjacency {
    pub(super) vertices: Vec<Vertex>,
    by_instance: BTreeMap<Instance, usize>,
    /// Unused indices.
    free: Vec<usize>,
    /// Indices of instances removed since the last update.
    vacated: Vec<usize>,
    /// Instances that may have lost or gained paths since the last update.
    pub(super) touched: BTreeSet<usize>,
    /// Those of them that may have gained one.
    pub(super) gained: BTreeSet<usize>,
    /// Instances whose `is_dead` has to be determined again.
    dirty: BTreeSet<usize>,
    duplicates: usize,
    /// Number of correct instances and of correct processes, as of the last update.
    correct: usize,
    correct_processes: usize,
    /// Number of links and node states visited by updates.
    pub(super) visits: u64,
}

impl Adjacency {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        let (mut correct, mut processes, mut duplicates) = (0, 0, 0);
        for (instance, index) in &self.by_instance {
            let vertex = &self.vertices[*index];
            assert_eq!(vertex.instance, *instance, "two instances with one index");
            assert!(vertex.is_present || !(vertex.is_correct || vertex.is_attached));
            correct += usize::from(vertex.is_correct);
            processes += usize::from(vertex.is_correct && !vertex.is_switch());
            duplicates += usize::from(vertex.is_duplicate());
            self.check_arcs(*index, vertex);
        }
        assert_eq!((correct, processes), (self.correct, self.correct_processes));
        assert_eq!(duplicates, self.duplicates);
        let is_unused = |index: &usize| !self.vertices[*index].is_present;
        assert!(self.free.iter().all(is_unused), "the index of a node is given again");
        assert_eq!(self.by_instance.len() + self.free.len(), self.vertices.len());
    }

    /// Asserts that the links of a vertex are those of their other ends.
    fn check_arcs(&self, index: usize, vertex: &Vertex) {
        let keys = vertex.arcs.iter().map(|arc| (arc.side, arc.to));
        assert!(keys.is_sorted_by(|one, other| one < other), "arcs of {:?}", vertex.instance);
        let mut uplinks = 0;
        for arc in &vertex.arcs {
            let back = self.vertices[arc.to].arcs_on(opposite(arc.side));
            let back = back.binary_search_by_key(&index, |back| back.to).map(|at| back[at]);
            let views = back.map(|back| (back.other, back.own));
            assert_eq!(views, Ok((arc.own, arc.other)), "a link of {:?}", vertex.instance);
            assert_ne!((arc.own, arc.other), (View::Unknown, View::Unknown));
            uplinks += u32::from(arc.side == Side::Upper && arc.other == View::Up);
        }
        assert_eq!(vertex.uplink_count, uplinks, "{:?}", vertex.instance);
    }

    pub(super) fn is_attached(&self, instance: Instance) -> bool {
        self.index(instance).is_some_and(|index| self.vertices[index].is_attached)
    }

    /// Returns the index of an instance that the graph contains.
    pub(crate) fn index(&self, instance: Instance) -> Option<usize> {
        self.by_instance.get(&instance).copied().filter(|index| self.vertices[*index].is_present)
    }

    pub(crate) fn instance(&self, index: usize) -> Instance {
        self.vertices[index].instance
    }

    /// Returns the links of `index` to instances that the graph contains.
    pub(crate) fn arcs(&self, index: usize) -> impl Iterator<Item = Arc> {
        self.vertices[index].arcs.iter().copied().filter(|arc| self.vertices[arc.to].is_present)
    }

    pub(crate) fn is_switch(&self, index: usize) -> bool {
        self.vertices[index].is_switch()
    }

    pub(crate) fn is_present(&self, index: usize) -> bool {
        self.vertices[index].is_present
    }

    /// Whether it had a path to the controller at the last update.
    pub(crate) fn is_correct(&self, index: usize) -> bool {
        self.vertices[index].is_correct
    }

    /// Whether any node lists `instance`, which need not be in the graph any more, as up.
    pub(crate) fn is_listed(&self, instance: Instance) -> bool {
        self.listed_by(instance).next().is_some()
    }

    /// Whether a correct node lists it as up.
    pub(crate) fn is_listed_by_correct(&self, instance: Instance) -> bool {
        self.listed_by(instance).any(|index| self.vertices[index].is_correct)
    }

    fn listed_by(&self, instance: Instance) -> impl Iterator<Item = usize> {
        let arcs = self.by_instance.get(&instance).map(|index| self.vertices[*index].arcs.iter());
        let up = arcs.into_iter().flatten().filter(|arc| arc.other == View::Up);
        up.map(|arc| arc.to)
    }

    /// Returns the number of correct instances.
    pub(crate) fn correct_count(&self) -> usize {
        self.correct
    }

    /// Returns the number of correct processes.
    pub(crate) fn correct_process_count(&self) -> usize {
        self.correct_processes
    }

    /// Returns the number of processes that more than one switch lists at a lower port.
    pub(crate) fn duplicates(&self) -> usize {
        self.duplicates
    }

    /// Returns the number of node states and links visited so far.
    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    /// Whether the graph contains a later incarnation of the same address.
    pub(crate) fn has_successor(&self, instance: Instance) -> bool {
        let last = Instance { incarnation: Incarnation(u32::MAX), ..instance };
        let mut later = self.by_instance.range((Bound::Excluded(instance), Bound::Included(last)));
        later.any(|(_, index)| self.vertices[*index].is_present)
    }

    /// Returns all instances of the graph with their indices, in ascending order.
    pub(super) fn indices(&self) -> impl Iterator<Item = (Instance, usize)> {
        let present =
            self.by_instance.iter().filter(|(_, index)| self.vertices[**index].is_present);
        present.map(|(instance, index)| (*instance, *index))
    }

    /// Adds `instance` to the graph. Returns its index.
    pub(super) fn insert(&mut self, instance: Instance) -> usize {
        let index = self.index_or_insert(instance);
        self.update_vertex(index, |vertex| vertex.is_present = true);
        self.touch(index, true);
        self.dirty.insert(index);
        index
    }

    /// Removes `instance` and its views from the graph. The views that others have of it stay.
    pub(super) fn remove(&mut self, instance: Instance) {
        let Some(index) = self.index(instance) else { return };
        for arc in self.vertices[index].arcs.clone() {
            self.set_view(index, arc.to, arc.side, View::Unknown);
        }
        self.set_correct(index, false);
        self.update_vertex(index, |vertex| {
            (vertex.is_present, vertex.is_attached) = (false, false)
        });
        self.touch(index, false);
        self.dirty.insert(index);
        self.vacated.push(index);
    }

    /// Sets the view that `from` has of its links to `to` on `side`.
    pub(super) fn set_view_of(&mut self, from: usize, to: Instance, side: Side, view: View) {
        let to = self.index_or_insert(to);
        self.set_view(from, to, side, view);
    }

    /// Notes whether the controller is attached to `instance`.
    pub(super) fn attach(&mut self, instance: Instance, is_attached: bool) {
        if let Some(index) = self.index(instance) {
            self.vertices[index].is_attached = is_attached;
            self.touch(index, is_attached);
        }
    }

    /// Returns the indices of all instances of `address`, each paired with the index of every past
    /// or present neighbour.
    pub(super) fn with_neighbours(&self, address: Address) -> impl Iterator<Item = (usize, usize)> {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances =
            self.by_instance.range(instance(0)..=instance(u32::MAX)).map(|(_, index)| *index);
        instances.flat_map(|index| self.vertices[index].arcs.iter().map(move |arc| (index, arc.to)))
    }

    /// Marks the instances of `address` as dirty.
    pub(super) fn mark_dirty(&mut self, address: Address) {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances = self.by_instance.range(instance(0)..=instance(u32::MAX));
        self.dirty.extend(instances.map(|(_, index)| index));
    }

    /// Marks all instances as dirty.
    pub(super) fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.by_instance.values());
    }

    pub(super) fn take_dirty(&mut self) -> BTreeSet<usize> {
        core::mem::take(&mut self.dirty)
    }

    /// Sets whether `index` counts as dead.
    pub(super) fn set_dead(&mut self, index: usize, is_dead: bool) {
        if self.vertices[index].is_dead != is_dead {
            self.vertices[index].is_dead = is_dead;
            self.touch(index, !is_dead);
        }
    }

    /// Notes that `index` may have lost paths, or gained some.
    fn touch(&mut self, index: usize, is_gain: bool) {
        self.touched.insert(index);
        if is_gain {
            self.gained.insert(index);
        }
    }

    /// Sets whether `index` is connected. Returns whether that is a change.
    pub(super) fn set_correct(&mut self, index: usize, is_correct: bool) -> bool {
        let vertex = &mut self.vertices[index];
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

    /// Makes the indices of removed instances available again.
    pub(super) fn recycle_indices(&mut self) {
        for index in core::mem::take(&mut self.vacated) {
            let vertex = &self.vertices[index];
            let is_free = !vertex.is_present && vertex.arcs.is_empty();
            debug_assert!(!is_free || !vertex.is_correct, "a removed instance is correct");
            if is_free && self.by_instance.get(&vertex.instance) == Some(&index) {
                self.by_instance.remove(&vertex.instance);
                self.free.push(index);
            }
        }
    }

    /// Returns the index of `instance`, which is allocated if needed.
    fn index_or_insert(&mut self, instance: Instance) -> usize {
        if let Some(index) = self.by_instance.get(&instance) {
            return *index;
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
        let index = self.free.pop().unwrap_or(self.vertices.len());
        if index == self.vertices.len() {
            self.vertices.push(vertex);
        } else {
            self.vertices[index] = vertex;
        }
        self.by_instance.insert(instance, index);
        index
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

    /// Changes what `index` knows of a link; a link that no end has a view of is removed. Returns
    /// whether it was up and whether it is up.
    fn update_arc(
        &mut self,
        index: usize,
        to: usize,
        side: Side,
        f: impl FnOnce(&mut Arc),
    ) -> (bool, bool) {
        self.update_vertex(index, |vertex| {
            let arc_index = vertex.arcs.binary_search_by_key(&(side, to), |arc| (arc.side, arc.to));
            let unknown = Arc { to, side, own: View::Unknown, other: View::Unknown };
            let was = arc_index.map_or(unknown, |arc_index| vertex.arcs[arc_index]);
            let mut arc = was;
            f(&mut arc);
            let is_known = (arc.own, arc.other) != (View::Unknown, View::Unknown);
            match arc_index {
                Ok(arc_index) if is_known => vertex.arcs[arc_index] = arc,
                Ok(arc_index) => drop(vertex.arcs.remove(arc_index)),
                Err(arc_index) if is_known => vertex.arcs.insert(arc_index, arc),
                Err(_) => {}
            }
            let uplinks = |arc: Arc| u32::from(arc.side == Side::Upper && arc.other == View::Up);
            vertex.uplink_count = vertex.uplink_count + uplinks(arc) - uplinks(was);
            (arc_index.is_ok() && was.is_up(), is_known && arc.is_up())
        })
    }

    /// Changes a vertex and maintains the number of duplicates.
    fn update_vertex<R>(&mut self, index: usize, f: impl FnOnce(&mut Vertex) -> R) -> R {
        let vertex = &mut self.vertices[index];
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
