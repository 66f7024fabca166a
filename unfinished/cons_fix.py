import re,sys,os,glob
root=sys.argv[1]; os.chdir(root)
def ed(p,a,b,n=1):
    t=open(p).read()
    if a not in t: print('!! not found',p,a[:50]); return
    open(p,'w').write(t.replace(a,b))
for f in glob.glob('crates/sandtimer/tests/estimates/*.rs'):
    t=open(f).read(); open(f,'w').write(t.replace('use crate::evaluation::','use super::evaluation::'))
for f in glob.glob('crates/sandtimer*/tests/forgers/*.rs'):
    t=open(f).read(); open(f,'w').write(t.replace('use crate::executions;','use super::executions;'))
f='crates/sandtimer/tests/forgers/mod.rs'; t=open(f).read()
open(f,'w').write(t.replace('use crate::as_user;\n','').replace('use crate::live;\n',''))
ed('crates/sandtimer/tests/as_user/mod.rs','    command.args(["--exact", test, "--nocapture"]).current_dir("/");','    command.args(["--exact", &path_of(&copy, test), "--nocapture"]).current_dir("/");')
t=open('crates/sandtimer/tests/as_user/mod.rs').read()
open('crates/sandtimer/tests/as_user/mod.rs','w').write(t.rstrip('\n')+'''

/// Returns the name of a test with its modules, as `program` lists it.
fn path_of(program: &Path, test: &str) -> String {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output().expect("it starts");
    let list = String::from_utf8_lossy(&output.stdout);
    let path = list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .find(|path| path.rsplit("::").next() == Some(test));
    path.unwrap_or_else(|| panic!("{test} is not in the list of tests")).to_owned()
}
''')
ed('crates/sandtimer/tests/machine_files.rs','--exact masked_proc','--exact machine_files::masked_proc')
ed('crates/sandtimer/tests/first_threads.rs','"--exact", "process_without','"--exact", "first_threads::process_without')
t=open('crates/sandtimer/tests/sandboxes.rs').read()
t=t.replace('''        "--exact",
        test,
''','''        "--exact",
        &format!("sandboxes::{test}"),
''')
open('crates/sandtimer/tests/sandboxes.rs','w').write(t)
for f in glob.glob('crates/*/tests/crashes/mod.rs'):
    ed(f,'"--exact", "doomed"','"--exact", "crashes::doomed"')
p='xtask/src/prove.rs'; t=open(p).read()
t=re.sub(r'binary\((\w+)\)',r'test(/^\1::/)',t)
open(p,'w').write(t)
