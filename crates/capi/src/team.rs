//! Teams: processes of several nodes that open, look at and close a file together.
use crate::call::{Failure, exclusive, give, path, status, take};
use crate::connection::{Connection, client};
use crate::file::{OpenFile, options};
use crate::stat::Stat;
use forebay_client::Team;
use libc::{c_char, c_int};

/// One process's place in a team.
pub struct JoinedTeam {
    team: Team,
}

/// Joins team `number` of processes at all nodes of the service, `here` of them at this node. All of them make the same
/// calls in the same order; each call is one for the service, and ends when the last has made it.
///
/// # Safety
/// `connection` is from forebay_connect(), `team` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_team_join(
    connection: *const Connection,
    number: u32,
    here: u32,
    team: *mut *mut JoinedTeam,
) -> c_int {
    status(|| {
        let join = || {
            // SAFETY: as the caller says.
            let client = unsafe { client(connection) }?;
            let team = client.team(&client.plan_of_all(number, here))?;
            Ok(JoinedTeam { team })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(team, join) }
    })
}

/// Leaves a team.
///
/// # Safety
/// `team` is null or from forebay_team_join(), and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_team_leave(team: *mut JoinedTeam) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        drop(unsafe { take(team) });
        Ok(())
    })
}

/// Opens a file as forebay_open() does, all together. FOREBAY_CREATE and FOREBAY_CREATE_NEW must be the same for all;
/// FOREBAY_TEMPORARY is refused.
///
/// # Safety
/// `team` is from forebay_team_join() and used by one thread at a time, `name` is a string, `file` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_team_open(
    team: *mut JoinedTeam,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut OpenFile,
) -> c_int {
    status(|| {
        let open = || {
            // SAFETY: as the caller says.
            let (team, name) = unsafe { (exclusive(team)?, path(name)?) };
            let file = team.team.open(name, &options(flags, mode)?)?;
            Ok(OpenFile { file })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(file, open) }
    })
}

/// The attributes of a file, asked for all together.
///
/// # Safety
/// `team` as in forebay_team_open(), `name` is a string; `stat` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_team_stat(
    team: *mut JoinedTeam,
    name: *const c_char,
    stat: *mut Stat,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (team, name, stat) = unsafe { (exclusive(team)?, path(name)?, exclusive(stat)?) };
        *stat = team.team.stat(name)?.into();
        Ok(())
    })
}

/// Publishes what each node wrote, and closes, all together, also if it fails. `stat`, if it is not null, gets the attributes
/// of the file as it is then.
///
/// # Safety
/// `team` as in forebay_team_open(), `file` is an open file and not used afterwards; `stat` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_team_close(
    team: *mut JoinedTeam,
    file: *mut OpenFile,
    stat: *mut Stat,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (team, file) = unsafe { (exclusive(team), take(file)) };
        // The file is closed also if there is no team.
        let team = team?;
        let file = file.ok_or_else(|| Failure::argument("the file is a null pointer"))?;
        let found = team.team.close(file.file)?;
        // SAFETY: as the caller says.
        if let Some(stat) = unsafe { stat.as_mut() } {
            *stat = found.into();
        }
        Ok(())
    })
}
