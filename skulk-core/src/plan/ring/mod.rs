//! placeholder

use super::{Cluster, Placement, Request};
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};

pub(super) fn plan(_: &ModelCard, _: &Cluster, _: &Request) -> Result<Placement> {
    Err(Error::new(ErrorKind::PlanNoFit, "not yet"))
}
