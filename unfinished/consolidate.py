import os,re,subprocess,sys,glob
root=sys.argv[1]; os.chdir(root)
def git(*a): subprocess.run(['git',*a],check=True)
SHARED={'support','as_user','live','programs','processes','machines','serving','node'}
for d in ['crates/sandtimer','crates/sandtimer-cli','crates/sandtimer-server','crates/sandtimer-jobs','crates/sandtimer-store','crates/sandtimer-agents','crates/sandtimer-records','crates/sandtimer-proxy','tests']:
    t=f'{d}/tests'
    if not os.path.isdir(t): continue
    files=sorted(glob.glob(f'{t}/*.rs'))
    if os.path.exists(f'{t}/main.rs') or len(files)+len(glob.glob(f'{t}/*/main.rs'))<2: continue
    mods={}  # name -> path attr or None
    for m in glob.glob(f'{t}/*/main.rs'):
        git('mv',m,m[:-7]+'mod.rs'); files.append(m[:-7]+'mod.rs')
    own=set()
    for f in files:
        own.add(os.path.basename(os.path.dirname(f)) if f.endswith('/mod.rs') else os.path.basename(f)[:-3])
    shared={}
    for f in files:
        s=open(f).read()
        def sub(m):
            path,name=m.group(1),m.group(2)
            isdir=f.endswith('/mod.rs')
            if path is None and isdir: return m.group(0)   # its own children
            if path:
                target=os.path.normpath(os.path.join(os.path.dirname(f),path))
                rel=os.path.relpath(target,t)
                rel=None if rel in (f'{name}/mod.rs',f'{name}.rs') else rel
                shared.setdefault(name,rel)
                if shared[name]!=rel: print('!! two paths for',name,f,rel); return m.group(0)
            else:
                if name in own: print('!! own',name,f)
                shared.setdefault(name,None)
            return f'use crate::{name};\n'
        n=re.sub(r'(?m)^(?:#\[path = "([^"]+)"\]\n)?(?:#\[allow\([^\n]*\)\]\n)?mod (\w+);\n',sub,s)
        if n!=s: open(f,'w').write(n)
    lines=[f'//! The integration tests of the crate, as one program: a program for each file would be linked for each file.\n']
    for name in sorted(own|set(shared)):
        if shared.get(name): lines.append(f'#[path = "{shared[name]}"]')
        lines.append(f'mod {name};')
    open(f'{t}/main.rs','w').write('\n'.join(lines)+'\n')
    c=f'{d}/Cargo.toml'; s=open(c).read()
    s=re.sub(r'(\[package\]\n(?:.+\n)*)',lambda m:m.group(1)+'autotests = false\n',s,count=1)
    s=s.rstrip('\n')+'\n\n[[test]]\nname = "integration"\npath = "tests/main.rs"\n'
    open(c,'w').write(s)
    print(d,len(own),sorted(shared.items(),key=str))
