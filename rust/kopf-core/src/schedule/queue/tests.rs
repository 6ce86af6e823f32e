//! The order, the shares and the bounds of permits, against a simple model.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ALL: [Priority; 3] = [Priority::Changed, Priority::Scheduled, Priority::Initial];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn position(due: i64, priority: Priority) -> Position {
    Position { due: at(due), priority }
}

/// Grants and gives back permits while an entry is due.
fn drain(queue: &mut WorkQueue<u32>, now: i64) -> Vec<Grant<u32>> {
    let granted = std::iter::from_fn(|| {
        let grant = queue.grant(at(now))?;
        queue.release();
        Some(grant)
    });
    granted.collect()
}

#[test]
fn the_order_is_by_due_time_then_by_arrival() {
    let mut queue = WorkQueue::new(9);
    for (key, due) in [(1, 5), (2, 3), (3, 5), (4, 9)] {
        queue.set(key, Some(position(due, Priority::Changed)));
    }
    // A moved entry keeps its arrival.
    queue.set(1, Some(position(4, Priority::Changed)));
    queue.set(1, Some(position(5, Priority::Changed)));
    let keys: Vec<_> = drain(&mut queue, 5).iter().map(|grant| grant.key).collect();
    assert_eq!(keys, [2, 1, 3]);
    assert_eq!(queue.next_due(), Some(at(9)));
    queue.set(4, None);
    assert_eq!((queue.next_due(), queue.position(4)), (None, None));
}

#[test]
fn at_most_so_many_permits_are_held() {
    let mut queue = WorkQueue::new(2);
    (0..5).for_each(|key| queue.set(key, Some(position(0, Priority::Changed))));
    assert!(queue.grant(at(0)).is_some() && queue.grant(at(0)).is_some());
    assert_eq!((queue.grant(at(0)), queue.running(), queue.next_due()), (None, 2, None));
    queue.release();
    assert!(queue.grant(at(0)).is_some());
    assert_eq!(WorkQueue::<u32>::new(0).concurrency, 1);
}

#[test]
fn of_13_permits_in_a_row_each_priority_gets_its_share() {
    let mut queue = WorkQueue::new(1);
    (0..300).for_each(|key| queue.set(key, Some(position(0, ALL[key as usize % 3]))));
    let granted: Vec<_> = drain(&mut queue, 0).iter().map(|grant| grant.position.priority).collect();
    for window in granted[..130].windows(13) {
        let share = |priority| window.iter().filter(|granted| **granted == priority).count();
        assert_eq!(ALL.map(share), [8, 4, 1]);
    }
}

#[test]
fn an_empty_queue_takes_no_memory_per_idle_entry() {
    let mut queue = WorkQueue::new(1);
    (0..100).for_each(|key| queue.set(key, Some(position(0, Priority::Changed))));
    drain(&mut queue, 0);
    assert!(queue.positions.is_empty() && ALL.iter().all(|priority| queue.len(*priority) == 0));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Set(u32, Option<Position>),
    Grant,
    Release,
    Wait(i64),
}

fn events() -> impl Strategy<Value = Event> {
    let priority = (0_usize..3).prop_map(|index| ALL[index]);
    let positions = (0_i64..20, priority).prop_map(|(due, priority)| position(due, priority));
    prop_oneof![
        5 => (0_u32..12, positions).prop_map(|(key, position)| Event::Set(key, Some(position))),
        1 => (0_u32..12).prop_map(|key| Event::Set(key, None)),
        5 => Just(Event::Grant),
        4 => Just(Event::Release),
        1 => (0_i64..5).prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Against a list that is searched: the entry, the order, the number of permits, the next due time, and the shares of
    /// priorities that had due entries all the time.
    #[test]
    fn the_queue_is_a_searched_list(concurrency in 1_usize..4, events in vec(events(), 1..60)) {
        let mut queue = WorkQueue::new(concurrency);
        let mut listed: Vec<(u32, Position)> = Vec::new();
        let (mut now, mut held) = (0, 0_usize);
        // Of the last permits: the priority, and the priorities that had due entries.
        let mut granted: Vec<(Priority, Vec<Priority>)> = Vec::new();
        for event in events {
            match event {
                Event::Set(key, position) => {
                    queue.set(key, position);
                    match (listed.iter_mut().find(|(listed, _)| *listed == key), position) {
                        (Some(entry), Some(position)) => entry.1 = position,
                        (None, Some(position)) => listed.push((key, position)),
                        (_, None) => listed.retain(|(listed, _)| *listed != key),
                    }
                }
                Event::Wait(seconds) => now += seconds,
                Event::Release if held > 0 => {
                    queue.release();
                    held -= 1;
                }
                Event::Release => {}
                Event::Grant => {
                    let due = |priority| {
                        let of = listed.iter().filter(|(_, it)| it.priority == priority && it.due <= at(now));
                        of.min_by_key(|(_, it)| it.due).copied()
                    };
                    let waiting: Vec<_> = ALL.into_iter().filter(|priority| due(*priority).is_some()).collect();
                    let grant = queue.grant(at(now));
                    prop_assert_eq!(grant.is_some(), held < concurrency && !waiting.is_empty());
                    if let Some(Grant { key, position }) = grant {
                        prop_assert_eq!(Some((key, position)), due(position.priority));
                        listed.retain(|(listed, _)| *listed != key);
                        granted.push((position.priority, waiting));
                        held += 1;
                    }
                }
            }
            let first = listed.iter().map(|(_, position)| position.due).min();
            prop_assert_eq!(queue.next_due(), first.filter(|_| held < concurrency));
            prop_assert_eq!(queue.running(), held);
        }
        for window in granted.windows(13) {
            for (priority, least) in ALL.into_iter().zip([8, 4, 1]) {
                let is_waiting = window.iter().all(|(_, waiting)| waiting.contains(&priority));
                let share = window.iter().filter(|(granted, _)| *granted == priority).count();
                prop_assert!(!is_waiting || share >= least, "{priority:?} starves: {window:?}");
            }
        }
    }
}
