//! The hierarchy of entities: no circles, not too many levels, not too many ancestors.

use std::collections::{BTreeMap, BTreeSet};

use skep_bounds::{ENTITY_ANCESTORS, ENTITY_LEVELS};

use super::{EntitiesError, Entity, Uid};

/// What is known of an entity whose parents are all known.
#[derive(Default)]
struct Ancestry<'a> {
    ancestors: BTreeSet<&'a Uid>,
    levels: usize,
}

/// Checks the limits of a hierarchy, the parents before their children and without recursion.
pub(super) fn check(entities: &[Entity]) -> Result<(), EntitiesError> {
    let listed: BTreeSet<&Uid> = entities.iter().map(|entity| &entity.uid).collect();
    let mut children: BTreeMap<&Uid, Vec<&Entity>> = BTreeMap::new();
    let mut waiting: BTreeMap<&Uid, usize> = BTreeMap::new();
    for entity in entities {
        let parents: BTreeSet<&Uid> = entity.parents.iter().filter(|parent| listed.contains(parent)).collect();
        waiting.insert(&entity.uid, parents.len());
        for parent in parents {
            children.entry(parent).or_default().push(entity);
        }
    }
    let mut ready: Vec<&Entity> =
        entities.iter().filter(|entity| waiting.get(&entity.uid).is_none_or(|parents| *parents == 0)).collect();
    let mut known: BTreeMap<&Uid, Ancestry<'_>> = BTreeMap::new();
    let mut total = 0;
    while let Some(entity) = ready.pop() {
        let here = known_of(entity, &known);
        total += here.ancestors.len();
        if here.levels > ENTITY_LEVELS {
            return Err(EntitiesError::Levels(entity.uid.to_string()));
        }
        if total > ENTITY_ANCESTORS {
            return Err(EntitiesError::Ancestors);
        }
        known.insert(&entity.uid, here);
        for child in children.get(&entity.uid).into_iter().flatten() {
            if let Some(parents) = waiting.get_mut(&child.uid) {
                *parents -= 1;
                if *parents == 0 {
                    ready.push(child);
                }
            }
        }
    }
    match entities.iter().find(|entity| !known.contains_key(&entity.uid)) {
        Some(stuck) => Err(EntitiesError::Cycle(in_circle(stuck, entities, &known).to_string())),
        None => Ok(()),
    }
}

fn known_of<'a>(entity: &'a Entity, known: &BTreeMap<&'a Uid, Ancestry<'a>>) -> Ancestry<'a> {
    let mut here = Ancestry::default();
    for parent in &entity.parents {
        here.ancestors.insert(parent);
        here.levels = here.levels.max(1);
        if let Some(above) = known.get(parent) {
            here.ancestors.extend(&above.ancestors);
            here.levels = here.levels.max(above.levels + 1);
        }
    }
    here
}

/// An entity of the circle above an entity that never became ready: each such entity has a parent of the same kind.
fn in_circle<'a>(stuck: &'a Entity, entities: &'a [Entity], known: &BTreeMap<&Uid, Ancestry<'_>>) -> &'a Uid {
    let by_uid: BTreeMap<&Uid, &Entity> = entities.iter().map(|entity| (&entity.uid, entity)).collect();
    let mut seen = BTreeSet::new();
    let mut here = stuck;
    while seen.insert(&here.uid) {
        let mut parents = here.parents.iter().filter(|parent| !known.contains_key(parent));
        match parents.find_map(|parent| by_uid.get(parent)) {
            Some(parent) => here = parent,
            None => break,
        }
    }
    &here.uid
}
