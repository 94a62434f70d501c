//! What a reason means, in words, and the setting to turn.

use super::super::iostat::delta;
use super::{Knob, Settings};
use braid_host::control::api::*;

/// The knob behind a reason, and the rest of the sentence.
pub(super) fn because(
    reason: &str,
    class: &str,
    device: &DeviceIo,
    old: Option<&QueueIo>,
    settings: &Settings,
) -> (Option<Knob>, String) {
    let knob = |name: &str| {
        let found = settings.get(name)?;
        Some(Knob { name: name.into(), value: found.value.clone(), source: found.source.name() })
    };
    let shown = |knob: &Option<Knob>| match knob {
        Some(k) => format!("{} {}, {}", k.name, k.value, k.source),
        None => "setting unknown".into(),
    };
    match reason {
        "class_reached" => {
            let knob = knob(&format!("{class}_max_active"));
            let text = format!(
                "because the class had its maximum on the device ({}). Raising it lets more of them go at once; other \
                 classes then wait longer inside the device.",
                shown(&knob)
            );
            (knob, text)
        }
        "depth_reached" => {
            let knob = knob("max_active");
            let text = format!(
                "because the device had all the commands it may have ({}). Raising it helps a device that can do more \
                 at once; on others the wait only moves into the device.",
                shown(&knob)
            );
            (knob, text)
        }
        "no_credit" => {
            let knob = knob("nia_credit");
            let text = format!(
                "because clients went first ({}). Raising it, or {class}_min_active, makes this background work faster \
                 and clients slower.",
                shown(&knob)
            );
            (knob, text)
        }
        "nia_delay" => {
            let knob = knob("nia_delay");
            let text = format!(
                "because a client was served a moment ago, or it has just begun: background work keeps to {class}_min_active until so many of \
                 its commands came back ({}). Lowering it makes this background work faster on a device with little to \
                 do.",
                shown(&knob)
            );
            (knob, text)
        }
        "dirty_ramp" => {
            let knob = knob("async_write_active_max_dirty_percent");
            let text = format!(
                "because they are not urgent: nobody waits for the checkpoint, and the log has room ({}). Lowering it \
                 lets checkpoints have {class}_max_active earlier; clients then wait longer beside them.",
                shown(&knob)
            );
            (knob, text)
        }
        "held_by_budget" => {
            let knob = knob("budget");
            let wait = settings.get("budget_wait").map_or("-", |p| p.value.as_str());
            let text = match &knob {
                Some(k) if k.value != "auto" => format!(
                    "because the device had all the commands that the budget allows ({}). Raising it lets more of them \
                     go at once, as more and smaller commands.",
                    shown(&knob)
                ),
                _ => format!(
                    "because the budget held them to grow larger commands ({}; budget_wait {wait}). budget=off lets \
                     them go at once, as more and smaller commands.",
                    shown(&knob)
                ),
            };
            (knob, text)
        }
        _ => {
            let now = delta::counts(&device.queue.reasons, old.map(|q| &q.reasons));
            let refused =
                [("refused_budget", "budget"), ("refused_tag", "queue_depth"), ("submitter_slept", "nr_requests")];
            let most = refused.into_iter().filter_map(|(reason, knob)| Some((*now.get(reason)?, knob))).max();
            match most {
                Some((n, name)) if n > 0 => {
                    let knob = knob(name);
                    let text = format!(
                        "most often ({n} times, all classes together) because of {}; raising it lets more of them go \
                         at once, and fewer of them join.",
                        shown(&knob)
                    );
                    (knob, text)
                }
                _ => {
                    let knob = knob("scheduler");
                    let text = format!("and nobody counted why: the scheduler {} does not.", device.queue.scheduler);
                    (knob, text)
                }
            }
        }
    }
}
