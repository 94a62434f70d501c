//! What comes before the first checkpoint of an opening counts: claims, and requests that wait.
//!
//! Where members are missing or behind, that checkpoint begins with a *claim*: superblocks that name this opening and the image
//! that it found. A power cut among the superblocks of a checkpoint leaves two images that are whole: the new one is named by some
//! members only, and the pages that only one of the two has are free to whoever opens the other.
//!
//! | the opening found | without a claim | with it |
//! |---|---|---|
//! | the old image, since who names the new one is missing | its pages are written over; then it comes back, is the newest, and names nothing | it is not the newest any more |
//! | the new image, on some members | pages of the old one are written over; then just those members are lost | the others name the new one as well |
//!
//! In the first case the one that is missing may even be ahead by the superblock of the next image, when it had been claimed with
//! the others and was cut in turn. So superblocks say who was away, and that decides: see [`Superblock::went_on_without`].
//!
//! Where not one of those that have the image takes the claim, the opening goes on without: the pool is not to stay shut for a bad
//! sector of one member while another one can have the next image.
//!
//! *Requests wait* where something that was found is not on all copies, or members may know more: a power cut may take just those
//! who have a mark that a write relies on, or bring back who knows nothing of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::checkpoint::Step;
use super::{Copies, Engine};
use crate::engine::{REQUESTS_MAX, Slip};
use crate::meta::Superblock;
use crate::meta::superblock::Age;
use crate::request::Request;
use crate::units::DeviceId;

/// Rounds of a claim, one after the other: see [`Claim::generation`].
const ROUNDS: u8 = 3;

/// Superblocks that say that an opening counts, before it has an image of its own.
#[derive(Clone)]
pub(in crate::engine) struct Claim {
    /// As it was found, but for the opening, and of the generation after it.
    pub(in crate::engine) superblock: Superblock,
    /// Members that say an earlier one, and what they said before.
    pub(in crate::engine) behind: BTreeMap<DeviceId, u64>,
    /// Members that get none: until an image says what they lack, their own superblocks do.
    pub(in crate::engine) older: BTreeSet<DeviceId>,
}

impl Claim {
    /// Who gets which generation in a round: first those that have the image that was found, then those that are behind. They stay
    /// so by a generation or two, since they may lack pages of the image: at first by as many as leave the slot alone that counts
    /// until then. The superblock of the next image goes to one of their slots; torn there, it must not leave what they had before,
    /// so the other one gets the claim too.
    fn generation(&self, member: DeviceId, round: u8) -> Option<u64> {
        if self.older.contains(&member) {
            return None;
        }
        let claimed = self.superblock.generation;
        match (round, self.behind.get(&member)) {
            (0, None) => Some(claimed),
            (1, Some(before)) => Some(claimed - 2 + (claimed - 1 - before) % 2),
            (2, Some(before)) => Some(claimed - 2 + (claimed - before) % 2),
            _ => None,
        }
    }

    /// The same, as what a member has then.
    pub(super) fn age(&self, member: DeviceId, round: u8) -> Option<Age> {
        self.generation(member, round).map(|generation| Age { generation, image: self.superblock.image })
    }
}

impl Engine {
    /// Writes this round of the claim, or the next one in which there is somebody to write to; after the last comes the image.
    pub(super) fn claim(&mut self, from: u8) {
        for round in from..ROUNDS {
            let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
            let Some(claim) = checkpoint.claim.take() else { break };
            (checkpoint.step, checkpoint.copies) = (Step::Claim(round), Copies::default());
            self.issue_superblocks(claim.superblock.clone(), |member| claim.generation(member, round));
            let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
            checkpoint.claim = Some(claim);
            // In the first one there must be somebody.
            if checkpoint.copies.pending > 0 || round == 0 {
                return;
            }
        }
        self.write_image();
    }

    /// From now on requests wait for the first checkpoint.
    pub(in crate::engine) fn park_requests(&mut self) {
        if !self.slips(Slip::RequestsNotParked) {
            self.commit.parked.get_or_insert_default();
        }
    }

    /// Whether they do.
    pub(in crate::engine) fn is_parking(&self) -> bool {
        self.commit.parked.is_some()
    }

    /// Requests that wait.
    pub(in crate::engine) fn parked(&self) -> usize {
        self.commit.parked.as_ref().map_or(0, Vec::len)
    }

    /// False when none has to, or no more may.
    pub(in crate::engine) fn park_request(&mut self, request: Request) -> bool {
        match &mut self.commit.parked {
            Some(parked) if parked.len() < REQUESTS_MAX => {
                parked.push(request);
                true
            }
            _ => false,
        }
    }

    /// The first checkpoint counts, or there will be none.
    pub(super) fn release_parked(&mut self) {
        for request in self.commit.parked.take().into_iter().flatten() {
            self.submit(request);
        }
    }
}
