//! Registered memory of a pipe.

use std::collections::VecDeque;
use std::time::Duration;

use onepipe_base::ProcessId;

use super::core::{Core, ThreadState};
use super::{Deadline, Pipe};
use crate::engine::with_engine;
use crate::memory::{
    Answers, Completed, MemoryService, MemoryStats, Operation, RegionError, RegionId, RemoteRegion,
    RequestError, RequestId, Rights,
};

impl Core {
    /// The machines of registered memory; `None` once the pipe has left.
    fn memory(&mut self) -> Option<&mut MemoryService> {
        let engine = self.engine_mut()?;
        Some(with_engine!(engine, engine => engine.node_mut().memory_mut()))
    }
}

impl Pipe {
    /// Registers memory of this process, which others may then operate on. `bytes` is a vector, or
    /// whatever else has bytes that do not move: a file mapping. `rights` say which processes may
    /// do what. The number is this process's to choose.
    ///
    /// # Errors
    /// [`RegionError`]: there is a region of this number, or this process has left.
    pub fn register(
        &mut self,
        region: RegionId,
        bytes: impl AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
        rights: Rights,
    ) -> Result<(), RegionError> {
        let mut core = self.shared.lock();
        let memory = core.memory().ok_or(RegionError::Left)?;
        Ok(memory.register(region, bytes, rights)?)
    }

    /// Removes a region. Operations on it are refused from now on.
    ///
    /// # Errors
    /// [`RegionError`]: there is no such region, or this process has left.
    pub fn deregister(&mut self, region: RegionId) -> Result<(), RegionError> {
        let mut core = self.shared.lock();
        let memory = core.memory().ok_or(RegionError::Left)?;
        memory.deregister(region).then_some(()).ok_or(RegionError::Unknown(region))
    }

    /// Replaces the rights of a region, for operations that are executed from now on.
    ///
    /// # Errors
    /// [`RegionError`]: there is no such region, or this process has left.
    pub fn set_rights(&mut self, region: RegionId, rights: Rights) -> Result<(), RegionError> {
        let mut core = self.shared.lock();
        let memory = core.memory().ok_or(RegionError::Left)?;
        memory.set_rights(region, rights).then_some(()).ok_or(RegionError::Unknown(region))
    }

    /// Calls `access` with the bytes of an own region. No operation of another process is executed
    /// meanwhile, and nothing is received: do not block in it.
    ///
    /// # Errors
    /// [`RegionError`]: there is no such region, or this process has left.
    pub fn with_region<R>(
        &mut self,
        region: RegionId,
        access: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, RegionError> {
        let mut core = self.shared.lock();
        let memory = core.memory().ok_or(RegionError::Left)?;
        memory.region_mut(region).map(access).ok_or(RegionError::Unknown(region))
    }

    /// A region of another process, or of this one, for single operations that wait for their
    /// results.
    pub fn remote(&mut self, owner: ProcessId, region: RegionId) -> RemoteRegion<'_> {
        RemoteRegion::new(self, owner, region)
    }

    /// Executes a request, a batch of operations for each of some owners, at one timestamp, and
    /// waits for the answers of all. An owner is given up after
    /// [`ClientOptions::give_up_ns`](crate::memory::ClientOptions::give_up_ns).
    ///
    /// # Errors
    /// [`RequestError`]: the request exceeds a limit, or this process has left. What an owner
    /// refuses is in its answer.
    pub fn execute(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<Answers, RequestError> {
        let mut core = self.shared.lock();
        let request = core.memory().ok_or(RequestError::Left)?.submit(batches)?;
        if self.shared.is_thread_driven() {
            core.wake_thread(ThreadState::Driving);
        }
        drop(core);
        let Self { shared, clock, .. } = self;
        let completed = Self::drive(shared, clock, None, |core| core.take_completed(request));
        completed.map(|completed| completed.answers).ok_or(RequestError::Left)
    }

    /// Submits a request as [`Pipe::execute`], and does not wait: [`Pipe::completed`] returns its
    /// answers.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was submitted.
    pub fn request(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, RequestError> {
        let mut core = self.shared.lock();
        let request = core.memory().ok_or(RequestError::Left)?.submit(batches)?;
        Self::dispatch(&self.shared, &mut self.clock, core);
        Ok(request)
    }

    /// Submits a batch that the owner executes as soon as it is delivered, exactly once, in an
    /// order of this owner alone: it waits neither for a commit nor for the commit barrier. A
    /// region to which all requests come so is linearizable. Beside requests in the total order,
    /// the batch may miss what others have already read at other owners: there one that reads
    /// serves to prepare a change that begins with a compare-and-swap, and one that writes makes
    /// copies of the region differ. Otherwise as [`Pipe::request`].
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was submitted.
    pub fn request_in_owner_order(
        &mut self,
        owner: ProcessId,
        batch: &[Operation<'_>],
    ) -> Result<RequestId, RequestError> {
        let mut core = self.shared.lock();
        let request =
            core.memory().ok_or(RequestError::Left)?.submit_in_owner_order(owner, batch)?;
        Self::dispatch(&self.shared, &mut self.clock, core);
        Ok(request)
    }

    /// Waits for at most `timeout` until a request has completed that [`Pipe::request`] has
    /// submitted, and returns it. Requests complete in any order.
    pub fn completed(&mut self, timeout: Duration) -> Option<Completed> {
        let Self { shared, clock, completions, .. } = self;
        if completions.is_empty() {
            let deadline = Some(Deadline::after(timeout));
            let fetch = |core: &mut Core| core.fetch_completed(completions).then_some(());
            Self::drive(shared, clock, deadline, fetch)?;
        }
        completions.pop_front()
    }

    /// Counters of registered memory since joining; `None` once this process has left.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        self.shared.lock().memory().map(|memory| memory.stats())
    }
}

impl Core {
    /// Returns the completion of a request, if it has completed.
    fn take_completed(&mut self, request: RequestId) -> Option<Completed> {
        let engine = self.engine_mut()?;
        with_engine!(engine, engine => engine.node_mut().memory_results().take_completed(request))
    }

    /// Passes all completions to `completions`, which is empty. Returns whether there are any.
    fn fetch_completed(&mut self, completions: &mut VecDeque<Completed>) -> bool {
        let Some(engine) = self.engine_mut() else { return false };
        with_engine!(engine, engine => {
            engine.node_mut().memory_results().fetch_completed(completions)
        })
    }
}
