//! The scatterings of the application without an outcome.

use alloc::vec::Vec;

use onepipe_base::ScatteringId;
use onepipe_endpoint::{OpenScattering, Service};

use crate::outgoing::Purpose;
use crate::{Event, LargeEndpoint};

impl LargeEndpoint {
    /// Returns the reliable scatterings without an outcome, as
    /// [`onepipe_endpoint::Endpoint::open_scatterings`], with the application's ids. One whose
    /// large payload has not reached all receivers is not among them.
    pub fn open_scatterings(&self) -> Vec<OpenScattering> {
        let open = self.endpoint().open_scatterings().into_iter();
        let own = |open: OpenScattering| {
            Some(OpenScattering { scattering: self.id_of(open.scattering)?, ..open })
        };
        open.filter_map(own).collect()
    }

    /// Cancels a reliable scattering, as [`onepipe_endpoint::Endpoint::cancel`]. Returns false for
    /// one that [`LargeEndpoint::open_scatterings`] does not return.
    pub fn cancel(&mut self, scattering: ScatteringId) -> bool {
        let open = self.endpoint().open_scatterings();
        let is = |open: &&OpenScattering| self.id_of(open.scattering) == Some(scattering);
        let Some(id) = open.iter().find(is).map(|open| open.scattering) else { return false };
        self.endpoint_mut().cancel(id)
    }

    /// Returns an id below which the outcome of every scattering of a service is known, and every
    /// failure was returned, as [`onepipe_endpoint::Endpoint::resolved_below`], with the
    /// application's ids.
    pub fn resolved_below(&self, service: Service) -> ScatteringId {
        let sent = self.outgoing.lowest_id_from(service, self.endpoint.resolved_below(service));
        let failed = self.events.iter().filter_map(|event| match event {
            Event::SendFailed(failed) if failed.service == service => Some(failed.scattering),
            _ => None,
        });
        let unordered = self.outgoing.unordered_ids(service);
        failed.chain(unordered).chain([sent]).min().unwrap_or(sent)
    }

    /// Returns the application's id of a reliable scattering; `None` for a control message.
    fn id_of(&self, id: ScatteringId) -> Option<ScatteringId> {
        match self.outgoing.purpose(Service::Reliable, id) {
            None => Some(self.outgoing.map_id(Service::Reliable, id)),
            Some(Purpose::Descriptors(scattering, _)) => Some(*scattering),
            Some(Purpose::Invitation(_) | Purpose::Withdrawal(_)) => None,
        }
    }
}
