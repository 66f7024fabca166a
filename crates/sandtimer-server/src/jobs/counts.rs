//! What is counted of jobs, in the text that Prometheus reads: for operators of all owners
//! together, and by name the asking owner's queues.

use std::fmt::Write;
use std::sync::Arc;

use sandtimer_jobs::job::QueueFacts;

use super::keeping::JobService;
use super::view::{StoreOwner, store_owner};
use crate::auth::OwnerId;
use crate::error::ApiRejection;
use crate::metrics::head;

/// Queues that are named.
const MAX_NAMED_QUEUES: usize = 1_000;

/// All of it, for this owner.
pub(crate) async fn text(
    service: &Arc<JobService>,
    owner: &OwnerId,
    is_operator: bool,
) -> Result<String, ApiRejection> {
    let (queues, outcomes) = service
        .ask(move |store| {
            store.sweep()?;
            let outcomes = if is_operator { store.outcomes()? } else { Default::default() };
            Ok((store.queues()?, outcomes))
        })
        .await?;
    let mut text = String::new();
    if is_operator {
        together(&mut text, &queues);
        head(&mut text, "sandtimer_jobs_ended_total", "counter", "Ended jobs, by ending.");
        for (status, count) in &outcomes {
            let _ = writeln!(text, "sandtimer_jobs_ended_total{{status=\"{status}\"}} {count}");
        }
        head(&mut text, "sandtimer_jobs_running", "gauge", "Jobs that this server executes.");
        let _ = writeln!(text, "sandtimer_jobs_running {}", service.running());
    }
    by_queue(&mut text, &store_owner(owner), queues);
    Ok(text)
}

/// States, and how many jobs of a queue are in them.
fn depths(queue: &QueueFacts) -> [(&'static str, u64); 4] {
    [("scheduled", queue.scheduled), ("queued", queue.queued), ("leased", queue.leased), ("dead", queue.dead)]
}

fn seconds(milliseconds: Option<u64>) -> f64 {
    milliseconds.unwrap_or(0) as f64 / 1_000.0
}

fn together(text: &mut String, queues: &[QueueFacts]) {
    head(text, "sandtimer_jobs", "gauge", "Jobs in the store, by state, of all owners.");
    for index in 0..4 {
        let state = depths(&EMPTY_QUEUE)[index].0;
        let sum: u64 = queues.iter().map(|queue| depths(queue)[index].1).sum();
        let _ = writeln!(text, "sandtimer_jobs{{state=\"{state}\"}} {sum}");
    }
    let oldest = queues.iter().filter_map(|queue| queue.oldest_ms).max();
    head(text, "sandtimer_jobs_oldest_seconds", "gauge", "How long the job has waited that waits longest.");
    let _ = writeln!(text, "sandtimer_jobs_oldest_seconds {}", seconds(oldest));
}

const EMPTY_QUEUE: QueueFacts = QueueFacts {
    queue: String::new(),
    paused: false,
    scheduled: 0,
    queued: 0,
    leased: 0,
    dead: 0,
    oldest_ms: None,
};

fn by_queue(text: &mut String, store_owner: &StoreOwner, queues: Vec<QueueFacts>) {
    let mut queues = store_owner.queues(queues);
    queues.truncate(MAX_NAMED_QUEUES);
    queues.iter_mut().for_each(|queue| queue.queue = escaped(&queue.queue));
    head(text, "sandtimer_queue_jobs", "gauge", "Jobs of your queues, by state.");
    for queue in &queues {
        for (state, count) in depths(queue) {
            let name = &queue.queue;
            let _ = writeln!(text, "sandtimer_queue_jobs{{queue=\"{name}\",state=\"{state}\"}} {count}");
        }
    }
    let help = "How long the job of a queue has waited that waits longest.";
    head(text, "sandtimer_queue_oldest_seconds", "gauge", help);
    for QueueFacts { queue, oldest_ms, .. } in &queues {
        let _ = writeln!(text, "sandtimer_queue_oldest_seconds{{queue=\"{queue}\"}} {}", seconds(*oldest_ms));
    }
    head(text, "sandtimer_queue_paused", "gauge", "Whether a queue hands out nothing.");
    for QueueFacts { queue, paused, .. } in &queues {
        let _ = writeln!(text, "sandtimer_queue_paused{{queue=\"{queue}\"}} {}", u8::from(*paused));
    }
}

/// Escapes a name as the value of a label: clients choose the names of queues.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_added_up_and_a_name_stays_within_its_quotes() {
        let queue = |name: &str, queued, oldest| QueueFacts {
            queue: name.to_owned(),
            queued,
            oldest_ms: Some(oldest),
            ..EMPTY_QUEUE
        };
        let queues = vec![queue("a\"} 1\\", 2, 500), queue("token:alice b", 3, 2_500)];
        let mut text = String::new();
        together(&mut text, &queues);
        assert!(text.contains("sandtimer_jobs{state=\"queued\"} 5\n"), "{text}");
        assert!(text.contains("sandtimer_jobs_oldest_seconds 2.5\n"), "{text}");
        let mut text = String::new();
        by_queue(&mut text, &store_owner(&OwnerId::recorded("uid:0")), queues);
        assert!(text.contains("{queue=\"a\\\"} 1\\\\\",state=\"queued\"} 2\n"), "{text}");
        assert!(!text.contains("alice"), "{text}");
    }
}
