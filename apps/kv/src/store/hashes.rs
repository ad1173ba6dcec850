//! Hashes: fields with values, returned in the order of the fields.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::data::{Failure, Hash, NOT_FLOAT, NOT_INTEGER, Reply};
use super::strings::{incremented, incremented_decimal};
use super::view::View;
use super::writer::Writer;
use crate::key::Key;
use crate::value::Value;

pub(super) fn get(view: &View<'_>, key: &Key, field: &[u8]) -> Reply {
    let hash = view.get::<Hash>(key)?;
    Ok(Value::bulk_or_null(hash.and_then(|hash| hash.get(field))))
}

pub(super) fn get_many(view: &View<'_>, key: &Key, fields: &[Vec<u8>]) -> Reply {
    let hash = view.get::<Hash>(key)?;
    let value = |field| Value::bulk_or_null(hash.and_then(|hash| hash.get(field)));
    Ok(Value::Array(fields.iter().map(value).collect()))
}

pub(super) fn all(view: &View<'_>, key: &Key) -> Reply {
    let pairs = view.get::<Hash>(key)?.into_iter().flatten();
    let pair = |(field, value): (&Vec<u8>, &Vec<u8>)| {
        (Value::Bulk(field.clone()), Value::Bulk(value.clone()))
    };
    Ok(Value::Map(pairs.map(pair).collect()))
}

pub(super) fn fields(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::Array(Value::bulks(view.get::<Hash>(key)?.into_iter().flat_map(Hash::keys))))
}

pub(super) fn values(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::Array(Value::bulks(view.get::<Hash>(key)?.into_iter().flat_map(Hash::values))))
}

pub(super) fn count(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::count(view.get::<Hash>(key)?.map_or(0, Hash::len)))
}

pub(super) fn exists(view: &View<'_>, key: &Key, field: &[u8]) -> Reply {
    let hash = view.get::<Hash>(key)?;
    Ok(Value::Integer(hash.is_some_and(|hash| hash.contains_key(field)).into()))
}

pub(super) fn length(view: &View<'_>, key: &Key, field: &[u8]) -> Reply {
    let hash = view.get::<Hash>(key)?;
    Ok(Value::count(hash.and_then(|hash| hash.get(field)).map_or(0, Vec::len)))
}

impl Writer<'_> {
    pub(super) fn hash_set(&mut self, key: &Key, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Reply {
        self.update(key, |hash: &mut Hash| {
            let before = hash.len();
            hash.extend(pairs);
            Ok((Value::count(hash.len() - before), true))
        })
    }

    pub(super) fn hash_set_if_absent(
        &mut self,
        key: &Key,
        field: Vec<u8>,
        value: Vec<u8>,
    ) -> Reply {
        self.update(key, |hash: &mut Hash| {
            let is_absent = !hash.contains_key(&field);
            if is_absent {
                hash.insert(field, value);
            }
            Ok((Value::Integer(is_absent.into()), is_absent))
        })
    }

    pub(super) fn hash_delete(&mut self, key: &Key, fields: &[Vec<u8>]) -> Reply {
        self.update(key, |hash: &mut Hash| {
            let count = fields.iter().filter_map(|field| hash.remove(field)).count();
            Ok((Value::count(count), count > 0))
        })
    }

    pub(super) fn hash_increment(&mut self, key: &Key, field: Vec<u8>, by: i64) -> Reply {
        self.update(key, |hash: &mut Hash| {
            let sum = incremented(hash.get(&field), by).map_err(|failure| match failure {
                NOT_INTEGER => Failure("ERR hash value is not an integer"),
                other => other,
            })?;
            hash.insert(field, sum.to_string().into_bytes());
            Ok((Value::Integer(sum), true))
        })
    }

    pub(super) fn hash_increment_decimal(&mut self, key: &Key, field: Vec<u8>, by: &[u8]) -> Reply {
        self.update(key, |hash: &mut Hash| {
            let sum =
                incremented_decimal(hash.get(&field), by).map_err(|failure| match failure {
                    NOT_FLOAT => Failure("ERR hash value is not a float"),
                    other => other,
                })?;
            hash.insert(field, sum.clone());
            Ok((Value::Bulk(sum), true))
        })
    }
}
