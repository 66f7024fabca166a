"""replay.py REPO BASE RENAMED THEIRS : writes into REPO's work tree (at RENAMED, maybe with other merges) what THEIRS changed since BASE, with RENAMED's names.
RENAMED differs from BASE by identifiers only (same lines)."""
import subprocess,sys,re,os,difflib,collections
repo,BASE,REN,TH=sys.argv[1:5]
def git(*a,ok=True,binary=False):
    r=subprocess.run(['git',*a],cwd=repo,capture_output=True)
    if r.returncode and ok: sys.exit(f"git {a}: {r.stderr.decode()}")
    return r.stdout if binary else r.stdout.decode()
def names(a,b):
    out={}
    for l in git('diff','-M40%','--name-status',a,b).splitlines():
        f=l.split('\t')
        out[f[1]]=(f[0][0],f[-1])
    return out
ren=names(BASE,REN); th=names(BASE,TH)
TOK=re.compile(r'[A-Za-z_]\w*')
def show(c,p):
    r=subprocess.run(['git','show',f'{c}:{p}'],cwd=repo,capture_output=True)
    return r.stdout.decode('utf-8','surrogateescape') if r.returncode==0 else None
glob=collections.defaultdict(collections.Counter)
permap={}
for old,(st,new) in ren.items():
    if not old.endswith('.rs') or st=='D': continue
    a,b=show(BASE,old),show(REN,new)
    if a is None or b is None: continue
    ta,tb=TOK.findall(a),TOK.findall(b)
    m=collections.defaultdict(collections.Counter)
    if len(ta)==len(tb):
        for x,y in zip(ta,tb): m[x][y]+=1
    else:
        al,bl=a.split('\n'),b.split('\n')
        if len(al)==len(bl):
            for x,y in zip(al,bl):
                x,y=TOK.findall(x),TOK.findall(y)
                if len(x)==len(y):
                    for p,q in zip(x,y): m[p][q]+=1
        print('token counts differ:',old)
    permap[old]=m
    for x,c in m.items():
        for y,n in c.items(): glob[x][y]+=n
def mapline(l,m):
    def f(x):
        t=x.group(0); c=m.get(t)
        if c:
            best=c.most_common(1)[0][0]
            if len(c)>1 and best!=t or len(c)>1: amb.add(t)
            return best
        g=glob.get(t)
        if g and t[0].isupper() and len(g)==1: return next(iter(g))
        return t
    return TOK.sub(f,l)
amb=set()
def replay(base,rn,theirs,m):
    B,R,T=base.split('\n'),rn.split('\n'),theirs.split('\n')
    if len(B)!=len(R): return None
    out=[]
    for tag,i1,i2,j1,j2 in difflib.SequenceMatcher(None,B,T,autojunk=False).get_opcodes():
        if tag=='equal': out+=R[i1:i2]
        else: out+=[mapline(l,m) for l in T[j1:j2]]
    return '\n'.join(out)
for p,(st,tp) in th.items():
    rp=ren.get(p,('',p))[1]
    cur=os.path.join(repo,rp)
    if st=='D':
        if os.path.exists(cur): git('rm','-q','-f',rp)
        continue
    theirs=show(TH,tp)
    dest=tp
    if st=='R' and rp!=p: dest=os.path.join(os.path.dirname(tp),os.path.basename(rp))
    elif rp!=p: dest=rp
    dst=os.path.join(repo,dest); os.makedirs(os.path.dirname(dst),exist_ok=True)
    if st=='A':
        out=mapline_all=('\n'.join(mapline(l,{}) for l in theirs.split('\n')) if p.endswith('.rs') else theirs)
        raw=git('show',f'{TH}:{tp}',binary=True)
        open(dst,'wb').write(out.encode('utf-8','surrogateescape') if p.endswith('.rs') else raw); git('add',dest); continue
    base=show(BASE,p); amb=set()
    now=open(cur,encoding='utf-8',errors='surrogateescape').read() if os.path.exists(cur) else None
    rn=show(REN,rp)
    mapped=replay(base,rn,theirs,permap.get(p,{})) if rn is not None and p in permap else theirs
    if mapped is None: print('LINES DIFFER',p); mapped=theirs
    if now is None: print('GONE',rp); continue
    if now!=rn:
        # others have changed it since: three-way merge
        for n,t in (('a',now),('b',rn),('c',mapped)): open('target/rp.'+n,'w',encoding='utf-8',errors='surrogateescape').write(t)
        r=subprocess.run(['git','merge-file','-p','target/rp.a','target/rp.b','target/rp.c'],capture_output=True)
        mapped=r.stdout.decode('utf-8','surrogateescape')
        if r.returncode: print('CONFLICT',dest,r.returncode)
    if dest!=rp: git('mv','-f',rp,dest)
    open(dst,'w',encoding='utf-8',errors='surrogateescape').write(mapped)
    git('add',dest)
    if amb: print('ambiguous in',dest,sorted(amb)[:12])
