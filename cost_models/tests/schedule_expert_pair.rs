//! Combined forward-backward of expert layers.

mod schedule_support;

use cost_models::schedule::{ExpertLayer, pair_seconds};
use schedule_support::{close, random_numbers};

#[test]
fn between_compute_alone_and_everything_in_a_row() {
    let mut random = random_numbers();
    for layers in 1..6 {
        for _ in 0..200 {
            let any: Vec<ExpertLayer> = (0..layers)
                .map(|_| ExpertLayer {
                    attention: [random(), random(), random()],
                    experts: [random(), random(), random()],
                    dispatch: [random(), random()],
                    combine: [random(), random()],
                })
                .collect();
            let seconds = pair_seconds(&any, &any);
            let serial: f64 = any.iter().map(ExpertLayer::serial_seconds).sum();
            let sums = |part: fn(&ExpertLayer) -> f64| any.iter().map(part).sum::<f64>();
            let compute = sums(|layer| layer.attention.iter().chain(&layer.experts).sum());
            let communication = sums(|layer| layer.dispatch.iter().chain(&layer.combine).sum());
            assert!(seconds >= compute.max(communication) - 1e-9 && seconds <= serial + 1e-9);
        }
    }
}

/// Short all-to-alls behind long computations are hidden but for the first and last of the pair.
#[test]
fn short_messages_are_hidden() {
    let layer = ExpertLayer {
        attention: [4.0, 4.0, 2.0],
        experts: [3.0, 3.0, 3.0],
        dispatch: [1.0, 1.0],
        combine: [1.0, 1.0],
    };
    let alone = ExpertLayer { dispatch: [0.0; 2], combine: [0.0; 2], ..layer };
    close(pair_seconds(&[alone; 4], &[alone; 4]), 4.0 * alone.serial_seconds(), "no messages");
    close(pair_seconds(&[layer; 4], &[layer; 4]), 4.0 * alone.serial_seconds(), "hidden");
    assert!(pair_seconds(&[layer; 4], &[]) > 4.0 * 7.0, "a forward alone exposes its messages");
}
