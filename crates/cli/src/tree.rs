//! Things that came from each other, drawn as a tree.

use std::collections::HashMap;
use std::hash::Hash;

/// Puts things into the order of a tree and gives each the lines before it: `├─ `, `└─ `, `│  `.
///
/// `ids` is in order of birth; a parent that is not among the elder ones makes a root.
pub(crate) fn tree<I: Eq + Hash>(ids: &[(I, Option<I>)]) -> Vec<(usize, String)> {
    let mut places: HashMap<&I, usize> = HashMap::new();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
    let mut roots = Vec::new();
    for (place, (id, parent)) in ids.iter().enumerate() {
        match parent.as_ref().and_then(|parent| places.get(parent)) {
            Some(&parent) => children[parent].push(place),
            None => roots.push(place),
        }
        places.insert(id, place);
    }
    // A stack, because a life can have more moments than a thread has room for calls.
    let mut waiting: Vec<(usize, String, String)> =
        roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
    let mut drawn = Vec::with_capacity(ids.len());
    while let Some((place, before, below)) = waiting.pop() {
        drawn.push((place, before));
        for (number, &child) in children[place].iter().rev().enumerate() {
            let (branch, trunk) = if number == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            waiting.push((child, format!("{below}{branch}"), format!("{below}{trunk}")));
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_hang_from_their_parents() {
        let ids = [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("a")), ("e", Some("gone"))];
        let drawn = tree(&ids).into_iter().map(|(place, before)| format!("{before}{}", ids[place].0));
        assert_eq!(drawn.collect::<Vec<_>>(), ["a", "├─ b", "│  └─ c", "└─ d", "e"]);
    }

    #[test]
    fn what_cannot_be_a_tree_is_shown_all_the_same() {
        let ids = [("a", Some("b")), ("b", Some("a")), ("c", Some("c"))];
        let drawn = tree(&ids);
        assert_eq!(drawn.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
