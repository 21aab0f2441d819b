//! The budget of bytes for the memory images of one sandbox.
//!
//! An image is admitted before anything of it is written. Checkpoints that the sandbox made of itself give way, the oldest
//! first; a checkpoint that a client asked for, or that a restore made, never does. Checkpoints leave a reserve free, so
//! that a sandbox with many of them can still go to sleep on disk.

/// The purpose of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageUse {
    /// The sandbox sleeps in it, or the children of a fork start from it: it goes when they are awake.
    Passing,
    /// A checkpoint that stays.
    Checkpoint,
}

/// An image that counts against the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldImage {
    /// Its size.
    pub bytes: u64,
    /// Whether it is removed when room is short.
    pub gives_way: bool,
}

/// An image that may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Places of the images that are removed before, the oldest first.
    pub give_way: Vec<usize>,
    /// Bytes that the image may take.
    pub room: u64,
}

/// An image that does not fit, and for which nothing is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes that the image needs.
    pub needed: u64,
    /// Bytes of images that do not give way.
    pub kept: u64,
    /// Bytes that images of this use may take together.
    pub most: u64,
}

/// Decides whether an image of `needed` bytes fits beside the `held` ones, which are ordered from the oldest to the newest.
///
/// `memory` is the memory limit of the sandbox: an image to sleep in needs about as much at most.
pub fn admit_image(
    purpose: ImageUse,
    budget: u64,
    memory: u64,
    held: &[HeldImage],
    needed: u64,
) -> Result<Admitted, OverBudget> {
    let most = match purpose {
        ImageUse::Passing => budget,
        ImageUse::Checkpoint => budget - memory.min(budget / 2),
    };
    // Sums of sizes, which cannot overflow.
    let (wide_needed, wide_most) = (u128::from(needed), u128::from(most));
    let kept = sum(held.iter().filter(|image| !image.gives_way));
    if kept + wide_needed > wide_most {
        return Err(OverBudget { needed, kept: u64::try_from(kept).unwrap_or(u64::MAX), most });
    }
    let mut all = sum(held.iter());
    let mut give_way = Vec::new();
    for (place, image) in held.iter().enumerate().filter(|(_, image)| image.gives_way) {
        if all + wide_needed <= wide_most {
            break;
        }
        all -= u128::from(image.bytes);
        give_way.push(place);
    }
    Ok(Admitted { give_way, room: u64::try_from(wide_most - all).unwrap_or(0) })
}

fn sum<'a>(images: impl Iterator<Item = &'a HeldImage>) -> u128 {
    images.map(|image| u128::from(image.bytes)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(bytes: u64) -> HeldImage {
        HeldImage { bytes, gives_way: true }
    }

    fn asked(bytes: u64) -> HeldImage {
        HeldImage { bytes, gives_way: false }
    }

    #[test]
    fn image_within_the_budget_removes_nothing() {
        let admitted = admit_image(ImageUse::Checkpoint, 100, 20, &[own(30), asked(20)], 30).unwrap();
        assert_eq!(admitted, Admitted { give_way: vec![], room: 30 });
    }

    #[test]
    fn oldest_own_checkpoints_give_way_first_and_no_more_than_needed() {
        let held = [own(30), asked(10), own(20), own(20)];
        let admitted = admit_image(ImageUse::Checkpoint, 100, 20, &held, 15).unwrap();
        assert_eq!(admitted, Admitted { give_way: vec![0], room: 30 });
        let admitted = admit_image(ImageUse::Checkpoint, 100, 20, &held, 45).unwrap();
        assert_eq!(admitted, Admitted { give_way: vec![0, 2], room: 50 });
    }

    #[test]
    fn image_that_cannot_fit_removes_nothing() {
        let refused = admit_image(ImageUse::Checkpoint, 100, 20, &[own(30), asked(60)], 21).unwrap_err();
        assert_eq!(refused, OverBudget { needed: 21, kept: 60, most: 80 });
    }

    #[test]
    fn checkpoints_leave_room_to_sleep_in() {
        let held = [asked(80)];
        assert!(admit_image(ImageUse::Checkpoint, 100, 20, &held, 1).is_err());
        assert!(admit_image(ImageUse::Passing, 100, 20, &held, 20).is_ok());
        // A budget below the memory limit still has room for both uses.
        assert!(admit_image(ImageUse::Checkpoint, 10, 20, &[], 5).is_ok());
    }

    proptest! {
        #[test]
        fn admitted_images_never_exceed_the_budget(
            budget: u64, memory: u64, needed: u64, checkpoint: bool,
            held in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..8),
        ) {
            let held: Vec<_> = held.into_iter().map(|(bytes, gives_way)| HeldImage { bytes, gives_way }).collect();
            let purpose = if checkpoint { ImageUse::Checkpoint } else { ImageUse::Passing };
            if let Ok(admitted) = admit_image(purpose, budget, memory, &held, needed) {
                let left = held.iter().enumerate().filter(|(place, _)| !admitted.give_way.contains(place));
                let left: u128 = left.map(|(_, image)| u128::from(image.bytes)).sum();
                prop_assert!(left + u128::from(needed) <= u128::from(budget));
                prop_assert!(needed <= admitted.room);
                prop_assert!(admitted.give_way.iter().all(|place| held[*place].gives_way));
            }
        }
    }
}
