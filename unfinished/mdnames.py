import re,sys,glob,os,subprocess
root=sys.argv[1]; tables=sys.argv[2:]
m={}
for t in tables:
    for l in open(t):
        f=l.rstrip('\n').split('\t')
        if len(f)<4 or f[3]=='=': continue
        if f[1]=='fn' and len(f[2])>=14 and '_' in f[2]: m.setdefault(f[2],set()).add(f[3])
m={k:next(iter(v)) for k,v in m.items() if len(v)==1}
code=subprocess.run(['bash','-c',f"cat $(git -C {root} ls-files '*.rs' | sed 's#^#{root}/#')"],capture_output=True,text=True).stdout
have=set(re.findall(r'\bfn (\w+)',code))
n=0
for f in subprocess.run(['git','-C',root,'ls-files','*.md','*.toml','*.py','*.mjs'],capture_output=True,text=True).stdout.split():
    p=os.path.join(root,f); s=open(p).read()
    def sub(x):
        w=x.group(0)
        return m[w] if w in m and w not in have and m[w] in have else w
    r=re.sub(r'\b\w+\b',sub,s)
    if r!=s: open(p,'w').write(r); n+=1; print(f)
print(n,len(m))
