//! Doing things at the same time whose time passes in waiting, mostly for a limit.

/// How many a test does at the same time.
pub const AT_ONCE: usize = 4;

/// Does `work` for all `items` at the same time and returns the failures, in the items' order.
///
/// # Panics
/// When `work` does.
pub fn side_by_side<Item: Send, Done: Send>(
    items: impl IntoIterator<Item = Item>,
    work: impl Fn(Item) -> Result<Done, String> + Sync,
) -> Vec<String> {
    let work = &work;
    std::thread::scope(|scope| {
        let started: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item).err())).collect();
        started.into_iter().filter_map(|thread| thread.join().expect("work does not panic")).collect()
    })
}
