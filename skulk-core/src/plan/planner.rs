//! Which placement is best? One pure function of card, cluster and request.

use super::cluster::Cluster;
use super::placement::Placement;
use super::request::{Request, Transport};
use crate::card::ModelCard;
use crate::error::Result;

/// Plans placements: pure, deterministic, and polynomial in the size of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Planner;

impl Planner {
    /// Places a model on a cluster.
    ///
    /// # Errors
    /// `PlanNoFit` and `PlanPending`, with a [`PlanReport`](super::PlanReport) as their detail.
    pub fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Placement> {
        match request.transport {
            Transport::Direct => super::direct::plan(card, cluster, request),
            Transport::MlxRing | Transport::MlxJaccl => super::ring::plan(card, cluster, request),
        }
    }
}
