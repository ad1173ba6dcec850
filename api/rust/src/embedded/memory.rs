//! Registered memory of a pipe without a thread.

use onepipe_base::ProcessId;

use super::EmbeddedPipe;
use crate::engine::with_engine;
use crate::memory::{
    Completed, MemoryService, MemoryStats, Operation, RegionError, RegionId, RequestId, Rights,
    SubmitError,
};

/// Operations are executed, and requests complete, in [`EmbeddedPipe::poll`].
impl EmbeddedPipe {
    fn memory(&self) -> &MemoryService {
        with_engine!(&self.fabric_engine, engine => engine.node().memory())
    }

    fn memory_mut(&mut self) -> &mut MemoryService {
        with_engine!(&mut self.fabric_engine, engine => engine.node_mut().memory_mut())
    }

    /// Registers memory of this process, which others may then operate on: see
    /// [`Pipe::register`](crate::Pipe::register).
    ///
    /// # Errors
    /// [`RegionError::Exists`]: there is a region of this number.
    pub fn register(
        &mut self,
        region: RegionId,
        bytes: impl AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
        rights: Rights,
    ) -> Result<(), RegionError> {
        Ok(self.memory_mut().register(region, bytes, rights)?)
    }

    /// Removes a region. Operations on it are refused from now on.
    ///
    /// # Errors
    /// [`RegionError::Unknown`]: there is no such region.
    pub fn deregister(&mut self, region: RegionId) -> Result<(), RegionError> {
        self.memory_mut().deregister(region).then_some(()).ok_or(RegionError::Unknown(region))
    }

    /// Replaces the rights of a region, for operations that are executed from now on.
    ///
    /// # Errors
    /// [`RegionError::Unknown`]: there is no such region.
    pub fn set_rights(&mut self, region: RegionId, rights: Rights) -> Result<(), RegionError> {
        let is_set = self.memory_mut().set_rights(region, rights);
        is_set.then_some(()).ok_or(RegionError::Unknown(region))
    }

    /// The bytes of an own region; `None` if there is no such region.
    pub fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.memory().region(region)
    }

    /// The bytes of an own region, for changes, which come between two operations of other
    /// processes; `None` if there is no such region.
    pub fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory_mut().region_mut(region)
    }

    /// Submits a request: a batch of operations for each of some owners, which execute them at one
    /// timestamp. The request is sent in the next turn. [`EmbeddedPipe::completed`] returns the
    /// answers.
    ///
    /// ```
    /// use onepipe::memory::{Operation, Outcome, RegionId, Rights};
    /// use onepipe::{EmbeddedPipe, ProcessId};
    ///
    /// let fabric = format!("doc-memory-embedded-{}", std::process::id());
    /// let join = |process| EmbeddedPipe::builder().fabric(&fabric).process(process).embedded();
    /// let (mut owner, mut client) = (join(0)?, join(1)?);
    /// owner.register(RegionId(0), vec![7; 16], Rights::all())?;
    /// let read = Operation::Read { region: RegionId(0), offset: 4, len: 2 };
    /// let request = client.request(&[(ProcessId(0), &[read])])?;
    /// let completed = loop {
    ///     owner.poll(|event| println!("{event:?}"));
    ///     client.poll(|event| println!("{event:?}"));
    ///     if let Some(completed) = client.completed() {
    ///         break completed;
    ///     }
    /// };
    /// assert_eq!(completed.request, request);
    /// let executed = completed.answers[0].1.as_ref().expect("the owner allows it");
    /// assert_eq!(executed.outcomes, [Outcome::Read(vec![7, 7])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SubmitError`]; then nothing was submitted.
    pub fn request(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, SubmitError> {
        self.memory_mut().submit(batches)
    }

    /// Submits a batch that the owner executes as soon as it is delivered, in its own order: see
    /// [`Pipe::request_in_owner_order`](crate::Pipe::request_in_owner_order).
    ///
    /// # Errors
    /// [`SubmitError`]; then nothing was submitted.
    pub fn request_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, SubmitError> {
        self.memory_mut().submit_in_owner_order(owner, batch)
    }

    /// Returns the next request that has completed. Requests complete in any order.
    pub fn completed(&mut self) -> Option<Completed> {
        with_engine!(&mut self.fabric_engine, engine => {
            engine.node_mut().memory_results().poll_completed()
        })
    }

    /// Counters of registered memory since joining.
    pub fn memory_stats(&self) -> MemoryStats {
        self.memory().stats()
    }
}
