//! Does drafting tokens ahead pay? Of this library's engines that is measured while they run; what a request counts, or of
//! other engines a card declares, and a placement's times say what is expected.
//!
//! A round checks a bonus token and `d` drafts at once. With each draft accepted with probability 0.7, it gives
//! `1 + 0.7 + … + 0.7^d` tokens. It reads attention and dense blocks once (5 % more for each draft), but other
//! experts for each token, and goes over the links once. A draft takes what the one reads that the request counts, and else
//! 10 % of a token's reading.

use super::arrange::Arrangement;
use super::drafts::Drafts;
use super::problem::Problem;
use super::seats::Seat;
use crate::bytes::ByteSize;
use crate::card::{RuntimeCardConfig, ServedSpecType};
use crate::plan::report::{Estimate, Speculation};

const ACCEPTED: f64 = 0.7;
const FURTHER_ROW: f64 = 0.05;
const DRAFT: f64 = 0.1;
/// Gains below that are not worth the risk.
const LEAST_GAIN: f64 = 1.05;
/// Drafts of a round at most.
const MOST: i32 = 15;

/// How many times as fast rounds of so many drafts should be.
fn gain(problem: &Problem<'_>, estimate: &Estimate, drafts: i32, draft_seconds: f64) -> f64 {
    let tokens: f64 = (0..=drafts).map(|accepted| ACCEPTED.powi(accepted)).sum();
    let routed = problem.inventory.layers.iter().any(|layer| layer.n_experts > 0);
    let rows = f64::from(drafts);
    let once = 1.0 + FURTHER_ROW * rows;
    let blocks = if routed { 1.0 + rows } else { once };
    let round = estimate.attention_seconds * once
        + estimate.feed_forward_seconds * blocks
        + estimate.hop_seconds
        + estimate.fan_out_seconds
        + draft_seconds * rows;
    if round > 0.0 { tokens * estimate.seconds() / round } else { 1.0 }
}

/// A gain in words.
fn in_words(drafts: i32, gain: f64) -> String {
    let plural = if drafts == 1 { "" } else { "s" };
    format!("{drafts} drafted token{plural} should give {:.0} % of the speed without", gain * 100.0)
}

/// Of what the request counts.
fn counted(problem: &Problem<'_>, drafts: &Drafts, best: &Arrangement, device: &Seat) -> Speculation {
    let estimate = &best.estimate;
    let seconds = estimate.draft_seconds;
    let of = |n: i32| (gain(problem, estimate, n, seconds), n);
    // Of equals the fewest.
    let depth = (2..=MOST).map(of).fold(of(1), |best, other| if other.0 > best.0 { other } else { best });
    let what = if problem.request.mtp { "the checkpoint's head for tokens ahead" } else { "the draft model" };
    let read = ByteSize(drafts.read(&problem.inventory, device));
    let reason = format!(
        "a draft of {what} takes {:.3} ms, for {read} that it reads; {}",
        seconds * 1e3,
        in_words(depth.1, depth.0)
    );
    match is_own(problem, best) {
        true => Speculation {
            on: true,
            reason: format!(
                "{reason}; drafts, and what followed when the text read the same, are computed ahead where that pays, as is \
                 measured meanwhile"
            ),
        },
        false => Speculation { on: depth.0 >= LEAST_GAIN, reason },
    }
}

/// Of this library's engines.
fn of_this_library(problem: &Problem<'_>) -> Speculation {
    let what = "what followed when the text read the same is computed ahead where that pays, as is measured meanwhile";
    let runtime = problem.card.runtime.as_ref();
    let served = runtime.and_then(|runtime| runtime.served_spec_type);
    let own = "the checkpoint's head for tokens ahead is loaded where the option mtp asks for it";
    let named = match served {
        // A server drafts with the head that the file has.
        Some(ServedSpecType::DraftMtp) => Some(own),
        _ if problem.inventory.mtp > 0 => Some(own),
        _ if runtime.is_some_and(heads) => {
            Some("the card's head for tokens ahead is loaded where the option draft_model names its file")
        }
        Some(ServedSpecType::DraftSimple) => {
            Some("the card's draft model is loaded where the option draft_model names it")
        }
        Some(ServedSpecType::DraftEagle3) => {
            Some("the card's EAGLE head is loaded where the option draft_model names it")
        }
        _ if runtime.is_some_and(|runtime| runtime.assistant_model_repo.is_some()) => {
            Some("the card's assistant is loaded where the option draft_model names it")
        }
        _ => None,
    };
    let beside = named.map(|named| format!("; {named}, which is not counted")).unwrap_or_default();
    Speculation { on: true, reason: format!("{what}{beside}") }
}

/// Whether a card declares a head for tokens ahead in a file of its own.
fn heads(runtime: &RuntimeCardConfig) -> bool {
    runtime.mtp_heads == Some(true) && runtime.mtp_sidecar_repo.is_some()
}

/// Whether a card declares something that drafts.
fn drafts(runtime: &RuntimeCardConfig) -> bool {
    let served = runtime.served_spec_type.is_some_and(|kind| kind != ServedSpecType::None);
    heads(runtime) || served || runtime.assistant_model_repo.is_some()
}

/// Whether all stages are this library's.
fn is_own(problem: &Problem<'_>, best: &Arrangement) -> bool {
    best.stages.iter().all(|(seat, _)| problem.is_own(*seat))
}

/// Decides for an arrangement.
pub(super) fn decide(problem: &Problem<'_>, best: &Arrangement) -> Speculation {
    if let (Some(drafts), Some((last, _))) = (&problem.drafts, best.stages.last()) {
        return counted(problem, drafts, best, &problem.seats[*last]);
    }
    if is_own(problem, best) {
        return of_this_library(problem);
    }
    let (estimate, nodes) = (&best.estimate, best.nodes(problem).len());
    let off = |reason: &str| Speculation { on: false, reason: reason.to_owned() };
    let Some(runtime) = &problem.card.runtime else { return off("the card declares nothing that drafts") };
    if !drafts(runtime) {
        return off("the card declares nothing that drafts");
    }
    if nodes > 1 && runtime.speculative_multi_node == Some(false) {
        return off("the card turns it off over several nodes (speculative_multi_node)");
    }
    let declared = runtime.mtp_max_depth.or(runtime.served_spec_n_max.map(|n| n as i64));
    let drafts = declared.unwrap_or(1).clamp(1, 16) as i32;
    let reading = estimate.attention_seconds + estimate.feed_forward_seconds;
    let gain = gain(problem, estimate, drafts, DRAFT * reading);
    Speculation { on: gain >= LEAST_GAIN, reason: in_words(drafts, gain) }
}
