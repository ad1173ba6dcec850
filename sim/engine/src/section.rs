//! A section of a vector that is divided among the parts of a simulation.

use std::ops::{Index, IndexMut};

/// A contiguous section of a vector. Indices count from the start of the whole vector; outside the
/// section there is nothing.
#[derive(Clone, Debug, Default)]
pub struct Section<T> {
    first: usize,
    items: Vec<T>,
}

impl<T> Section<T> {
    /// Returns the item at `index` of the whole vector, if it belongs to the section.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index.wrapping_sub(self.first))
    }

    /// Returns the item at `index` of the whole vector for changes.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index.wrapping_sub(self.first))
    }

    /// Returns the items of the section.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Returns the items of the section for changes.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// Moves the items into sections of these lengths, and leaves none.
    ///
    /// # Panics
    /// If the lengths add up to less than all items.
    #[must_use]
    pub fn divide(&mut self, lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let mut items = std::mem::take(&mut self.items).into_iter();
        let mut first = self.first;
        let mut part = |len| {
            let part = Self { first, items: items.by_ref().take(len).collect() };
            first += len;
            part
        };
        let parts = lens.into_iter().map(&mut part).collect();
        assert!(items.next().is_none(), "every item belongs to a part");
        parts
    }

    /// Appends the section that follows this one.
    ///
    /// # Panics
    /// If another section does.
    pub fn append(&mut self, mut next: Self) {
        if self.items.is_empty() {
            self.first = next.first;
        }
        assert_eq!(next.first, self.first + self.items.len(), "sections are appended in order");
        self.items.append(&mut next.items);
    }
}

impl<T> From<Vec<T>> for Section<T> {
    fn from(items: Vec<T>) -> Self {
        Self { first: 0, items }
    }
}

impl<T> Index<usize> for Section<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.items[index - self.first]
    }
}

impl<T> IndexMut<usize> for Section<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.items[index - self.first]
    }
}

impl<'a, T> IntoIterator for &'a Section<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_indices_of_the_whole() {
        let mut whole = Section::from(vec!['a', 'b', 'c', 'd']);
        let parts = whole.divide([1, 0, 3]);
        assert!(whole.iter().next().is_none());
        assert_eq!((parts[0].get(0), parts[0].get(1)), (Some(&'a'), None));
        assert_eq!((parts[2].get(0), parts[2][1], parts[2].get(4)), (None, 'b', None));
        parts.into_iter().for_each(|part| whole.append(part));
        whole[2] = 'x';
        assert!(whole.iter().eq(&['a', 'b', 'x', 'd']));
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn rejects_parts_out_of_order() {
        let mut whole = Section::from(vec![1, 2, 3]);
        whole.divide([1, 2]).into_iter().rev().for_each(|part| whole.append(part));
    }
}
