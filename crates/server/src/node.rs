//! One member at work: its store, its parts, and its end of the fabric.
use crate::{Peers, data::Data, files::Files, inodes::Inodes, meta::Meta};
use forebay_storage::Store;
use std::sync::Arc;

pub struct Node {
    pub store: Arc<Store>,
    pub inodes: Arc<Inodes>,
    pub meta: Arc<Meta>,
    pub files: Arc<Files>,
    pub data: Arc<Data>,
    pub peers: Arc<Peers>,
}
