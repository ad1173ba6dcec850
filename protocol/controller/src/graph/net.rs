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
pub(super) const FAR: u32 = u32::MAX;

/// One life, as the arrays have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vertex {
    pub instance: Instance,
    /// Whether the graph knows it; else others only speak of it as they did when it did.
    pub is_present: bool,
    /// It counts as dead, whatever its links.
    pub is_out: bool,
    /// The controller sits there.
    pub is_start: bool,
    /// It had a path at the last repair.
    pub is_correct: bool,
    /// How far the controller is, climbing all the way from it; in links.
    pub climbed: u32,
    /// The same for paths that may go down at their end; at most one more than `climbed`.
    pub descended: u32,
    /// Ascending by side and the other node.
    pub arcs: Vec<Arc>,
    /// Switches that have it at a lower port.
    seats: u32,
}

impl Vertex {
    /// Whether paths may lead through or to it.
    pub fn is_open(&self) -> bool {
        self.is_present && !self.is_out
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

    fn is_double(&self) -> bool {
        self.is_present && !self.is_switch() && self.seats > 1
    }
}

/// All lives that anybody has spoken of, densely numbered, and the links between them, each of
/// them noted at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Net {
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
    doubted: BTreeSet<usize>,
    doubles: usize,
    /// Correct lives, and the processes among them, as of the last repair.
    correct: usize,
    processes: usize,
    /// Links and states of nodes that repairs have looked at.
    pub(super) visits: u64,
}

impl Net {
    /// The number of a life that the graph knows.
    pub(crate) fn place(&self, instance: Instance) -> Option<usize> {
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
    pub(crate) fn correct(&self) -> usize {
        self.correct
    }

    /// How many processes among them.
    pub(crate) fn processes(&self) -> usize {
        self.processes
    }

    /// How many processes more than one switch has at a lower port.
    pub(crate) fn doubles(&self) -> usize {
        self.doubles
    }

    /// How many states of nodes, and links, have been looked at in all.
    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    /// Who has later lives of the same address than this one, and is known.
    pub(crate) fn has_later(&self, instance: Instance) -> bool {
        let last = Instance { incarnation: Incarnation(u32::MAX), ..instance };
        let mut later = self.by_instance.range((Bound::Excluded(instance), Bound::Included(last)));
        later.any(|(_, at)| self.vertices[*at].is_present)
    }

    /// All lives that the graph knows and their numbers, ascending.
    pub(super) fn places(&self) -> impl Iterator<Item = (Instance, usize)> {
        let present = self.by_instance.iter().filter(|(_, at)| self.vertices[**at].is_present);
        present.map(|(instance, at)| (*instance, *at))
    }

    /// The graph knows `instance` from now on. Answers its number.
    pub(super) fn appear(&mut self, instance: Instance) -> usize {
        let at = self.number(instance);
        self.change(at, |vertex| vertex.is_present = true);
        self.touch(at, true);
        self.doubted.insert(at);
        at
    }

    /// The graph knows `instance` no more: it says nothing of anybody. What others say of it stays.
    pub(super) fn vanish(&mut self, instance: Instance) {
        let Some(at) = self.place(instance) else { return };
        for arc in self.vertices[at].arcs.clone() {
            self.tell(at, arc.to, arc.side, View::Unknown);
        }
        self.set_correct(at, false);
        self.change(at, |vertex| (vertex.is_present, vertex.is_start) = (false, false));
        self.touch(at, false);
        self.doubted.insert(at);
        self.vacated.push(at);
    }

    /// What `from`, which is known, says of its links to `to` on `side`.
    pub(super) fn say(&mut self, from: usize, to: Instance, side: Side, view: View) {
        let to = self.number(to);
        self.tell(from, to, side, view);
    }

    /// The controller sits at `instance`, or does not any more.
    pub(super) fn attach(&mut self, instance: Instance, is_attached: bool) {
        if let Some(at) = self.place(instance) {
            self.vertices[at].is_start = is_attached;
            self.touch(at, is_attached);
        }
    }

    /// The numbers of all lives of `address`, each with those of all to whom it is or was linked.
    pub(super) fn around(&self, address: Address) -> impl Iterator<Item = (usize, usize)> {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances = self.by_instance.range(instance(0)..=instance(u32::MAX)).map(|(_, at)| *at);
        instances.flat_map(|at| self.vertices[at].arcs.iter().map(move |arc| (at, arc.to)))
    }

    /// It is to be found out anew whether the lives of `address` count as dead.
    pub(super) fn doubt(&mut self, address: Address) {
        let instance = |incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let instances = self.by_instance.range(instance(0)..=instance(u32::MAX));
        self.doubted.extend(instances.map(|(_, at)| at));
    }

    /// The same of everybody.
    pub(super) fn doubt_all(&mut self) {
        self.doubted.extend(self.by_instance.values());
    }

    pub(super) fn take_doubted(&mut self) -> BTreeSet<usize> {
        core::mem::take(&mut self.doubted)
    }

    /// Whether `at` counts as dead.
    pub(super) fn judge(&mut self, at: usize, is_out: bool) {
        if self.vertices[at].is_out != is_out {
            self.vertices[at].is_out = is_out;
            self.touch(at, !is_out);
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
        let is_news = core::mem::replace(&mut vertex.is_correct, is_correct) != is_correct;
        let process = usize::from(is_news && !vertex.is_switch());
        if is_correct {
            (self.correct, self.processes) =
                (self.correct + usize::from(is_news), self.processes + process);
        } else {
            (self.correct, self.processes) =
                (self.correct - usize::from(is_news), self.processes - process);
        }
        is_news
    }

    /// Gives the numbers of those who have gone to others.
    pub(super) fn recycle(&mut self) {
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
    fn number(&mut self, instance: Instance) -> usize {
        if let Some(at) = self.by_instance.get(&instance) {
            return *at;
        }
        let vertex = Vertex {
            instance,
            is_present: false,
            is_out: false,
            is_start: false,
            is_correct: false,
            climbed: FAR,
            descended: FAR,
            arcs: Vec::new(),
            seats: 0,
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

    fn tell(&mut self, from: usize, to: usize, side: Side, view: View) {
        let (was_up, is_up) = self.note(from, to, side, |arc| arc.own = view);
        self.note(to, from, opposite(side), |arc| arc.other = view);
        if was_up != is_up {
            self.touch(from, is_up);
            self.touch(to, is_up);
        }
        if view == View::Up && self.vertices[to].is_out {
            self.doubted.insert(to);
        }
        if !self.vertices[to].is_present && self.vertices[to].arcs.is_empty() {
            self.vacated.push(to);
        }
    }

    /// Changes what `at` knows of a link; one of which nobody says anything is forgotten. Answers
    /// whether it was up and whether it is.
    fn note(
        &mut self,
        at: usize,
        to: usize,
        side: Side,
        note: impl FnOnce(&mut Arc),
    ) -> (bool, bool) {
        self.change(at, |vertex| {
            let place = vertex.arcs.binary_search_by_key(&(side, to), |arc| (arc.side, arc.to));
            let unknown = Arc { to, side, own: View::Unknown, other: View::Unknown };
            let was = place.map_or(unknown, |place| vertex.arcs[place]);
            let mut arc = was;
            note(&mut arc);
            let is_known = (arc.own, arc.other) != (View::Unknown, View::Unknown);
            match place {
                Ok(place) if is_known => vertex.arcs[place] = arc,
                Ok(place) => drop(vertex.arcs.remove(place)),
                Err(place) if is_known => vertex.arcs.insert(place, arc),
                Err(_) => {}
            }
            let is_seat = |arc: Arc| u32::from(arc.side == Side::Upper && arc.other == View::Up);
            vertex.seats = vertex.seats + is_seat(arc) - is_seat(was);
            (place.is_ok() && was.is_up(), is_known && arc.is_up())
        })
    }

    /// Changes a vertex, and keeps count of those that are at two places.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Vertex) -> R) -> R {
        let vertex = &mut self.vertices[at];
        let was_double = vertex.is_double();
        let result = change(vertex);
        match (was_double, vertex.is_double()) {
            (false, true) => self.doubles += 1,
            (true, false) => self.doubles -= 1,
            _ => {}
        }
        result
    }
}
