//! Where does the CPU's memory begin? With a cache line: vectors that lie across two take twice as long, and both lines have to
//! be got from other cores where they are written.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Elements from the beginning of a cache line on.
#[derive(Default)]
pub(crate) struct Lines<T> {
    memory: Vec<T>,
    first: usize,
    len: usize,
}

impl<T: Copy + Default> Lines<T> {
    /// So many elements, all zero, in memory that exists from now on.
    pub(crate) fn new(len: usize) -> Result<Self, TryReserveError> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(len.saturating_add(Self::spare()))?;
        memory.resize(len + Self::spare(), T::default());
        Ok(Self::of(memory, len))
    }

    /// The same in memory whose pages exist from their first use on: of much, short prompts need little.
    pub(crate) fn zeroed(len: usize) -> Result<Self, TryReserveError> {
        // Ask first: what follows would end the process instead of failing.
        Vec::<T>::new().try_reserve_exact(len.saturating_add(Self::spare()))?;
        Ok(Self::of(vec![T::default(); len + Self::spare()], len))
    }

    fn of(memory: Vec<T>, len: usize) -> Self {
        Self { first: memory.as_ptr().align_offset(LINE).min(Self::spare()), memory, len }
    }

    /// Elements that may lie before the first line.
    const fn spare() -> usize {
        assert!(LINE.is_multiple_of(size_of::<T>()));
        LINE / size_of::<T>()
    }

    /// Has at least `len` elements, all zero if there were fewer; shorter steps keep the memory of longer ones.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.len < len {
            // Twice as many, so that it does not grow each time there are a few more.
            let len = len.max(2 * self.len);
            // What was there goes first.
            (self.memory, self.first, self.len) = (Vec::new(), 0, 0);
            *self = Self::of(vec![T::default(); len + Self::spare()], len);
        }
    }

    /// The first element's address. No reference to others is made, which who holds their addresses may write.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.memory.as_mut_ptr().wrapping_add(self.first)
    }
}

/// Writes zeros. Compilers know that these are zero bytes, where `fill` is compiled for any number.
pub(crate) fn clear(x: &mut [f32]) {
    for x in x {
        *x = 0.0;
    }
}

impl<T> Deref for Lines<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.first..self.first + self.len]
    }
}

impl<T> DerefMut for Lines<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.first..self.first + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn memory_begins_with_a_line() {
        for len in [0, 1, 15, 16, 100, 10_000] {
            let mut lines = Lines::<f32>::new(len).unwrap();
            assert_eq!((lines.len(), lines.as_ptr() as usize % 64), (len, 0));
            assert!(lines.iter().all(|x| *x == 0.0));
            lines.fill(1.0);
            lines.grow(len / 2);
            assert!(lines.len() == len && lines.iter().all(|x| *x == 1.0), "{len}");
            lines.grow(len + 1);
            assert_eq!((lines.len(), lines.as_ptr() as usize % 64), ((len + 1).max(2 * len), 0));
            assert_eq!(lines.as_ptr(), lines.as_mut_ptr().cast_const());
            assert!(lines.iter().all(|x| *x == 0.0));
            let zeroed = Lines::<f32>::zeroed(len).unwrap();
            assert_eq!(zeroed.as_ptr() as usize % 64, 0);
            assert!(zeroed.len() == len && zeroed.iter().all(|x| *x == 0.0));
        }
        assert_eq!(Lines::<i8>::new(3).unwrap().as_ptr() as usize % 64, 0);
        for len in [usize::MAX, usize::MAX / 8] {
            assert!(Lines::<f32>::new(len).is_err() && Lines::<f32>::zeroed(len).is_err());
        }
    }
}
