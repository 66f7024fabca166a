"""Renames symbols by rust-analyzer. usage: ra.py ROOT TABLE.tsv... [--log FILE]"""
import json,os,re,subprocess,sys,threading,time,queue,collections
ROOT=os.path.abspath(sys.argv[1]); TABLES=[a for a in sys.argv[2:] if not a.startswith('--')]
LOG=open('target/ra-rename.log','a')
def log(*a):
    print(*a,file=LOG,flush=True)
class Ra:
    def __init__(s):
        env=dict(os.environ,RA_LOG='error')
        s.p=subprocess.Popen(['rust-analyzer'],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=open('target/ra.err','w'),cwd=ROOT,env=env)
        s.id=0; s.replies={}; s.cv=threading.Condition(); s.progress={}; s.status=None
        threading.Thread(target=s.read,daemon=True).start()
    def send(s,m):
        b=json.dumps(dict(jsonrpc='2.0',**m)).encode(); s.p.stdin.write(b'Content-Length: %d\r\n\r\n'%len(b)+b); s.p.stdin.flush()
    def read(s):
        f=s.p.stdout
        while True:
            n=None
            while True:
                l=f.readline()
                if not l: return
                if l.lower().startswith(b'content-length'): n=int(l.split(b':')[1])
                if l==b'\r\n': break
            m=json.loads(f.read(n))
            if 'id' in m and 'method' in m:
                r=None
                if m['method']=='workspace/configuration': r=[SETTINGS for _ in m['params']['items']]
                s.send({'id':m['id'],'result':r}); continue
            if 'id' in m:
                with s.cv: s.replies[m['id']]=m; s.cv.notify_all()
            elif m.get('method')=='experimental/serverStatus':
                with s.cv: s.status=m['params']; s.cv.notify_all()
    def req(s,method,params,timeout=300):
        s.id+=1; i=s.id; s.send({'id':i,'method':method,'params':params})
        with s.cv:
            end=time.time()+timeout
            while i not in s.replies:
                if not s.cv.wait(max(0.1,end-time.time())) and time.time()>end: raise TimeoutError(method)
            m=s.replies.pop(i)
        if 'error' in m: raise RuntimeError(m['error'].get('message'))
        return m['result']
    def note(s,method,params): s.send({'method':method,'params':params})
SETTINGS={"cargo":{"features":"all","targetDir":"target/ra-target","allTargets":True},"checkOnSave":False,"procMacro":{"enable":True},"cachePriming":{"enable":True}}
ra=Ra()
ra.req('initialize',{'processId':os.getpid(),'rootUri':'file://'+ROOT,'capabilities':{'workspace':{'configuration':True,'workspaceEdit':{'documentChanges':True,'resourceOperations':['create','rename','delete']}},'window':{'workDoneProgress':False},'experimental':{'serverStatusNotification':True},'general':{'positionEncodings':['utf-8']}},'initializationOptions':SETTINGS},600)
ra.note('initialized',{})
t=time.time()
while True:
    with ra.cv:
        ra.cv.wait(5)
        if ra.status and ra.status.get('quiescent'): break
    if time.time()-t>1200: sys.exit('not ready')
print('ready after %.0f s'%(time.time()-t),ra.status,flush=True)
orig={}
def orig_line(p,line):
    q=moved_from.get(p,p)
    if q not in orig:
        rel=os.path.relpath(q,ROOT)
        orig[q]=subprocess.run(['git','show',BASE+':'+rel],cwd=ROOT,capture_output=True,text=True).stdout.split('\n')
    return orig[q][line] if line<len(orig[q]) else ''
moved_from={}
BASE=os.environ.get('RA_BASE','HEAD')
texts={};version=collections.Counter()
def uri(p): return 'file://'+p
def text(p):
    if p not in texts:
        texts[p]=open(p,encoding='utf-8').read(); version[p]=1
        ra.note('textDocument/didOpen',{'textDocument':{'uri':uri(p),'languageId':'rust','version':1,'text':texts[p]}})
    return texts[p]
def set_text(p,t):
    texts[p]=t; version[p]+=1
    open(p,'w',encoding='utf-8').write(t)
    ra.note('textDocument/didChange',{'textDocument':{'uri':uri(p),'version':version[p]},'contentChanges':[{'text':t}]})
def offs(t):
    o=[0]
    for l in t.encode().split(b'\n'): o.append(o[-1]+len(l)+1)
    return o
def apply(edit):
    files=collections.defaultdict(list); moves=[]
    for u,es in (edit.get('changes') or {}).items(): files[u[7:]]+=es
    for dc in edit.get('documentChanges') or []:
        if dc.get('kind')=='rename': moves.append((dc['oldUri'][7:],dc['newUri'][7:]))
        elif 'edits' in dc: files[dc['textDocument']['uri'][7:]]+=dc['edits']
    for p in files:
        if not p.startswith(ROOT+'/') or '/target/' in p or '/helper/' in p: raise RuntimeError('edit outside: '+p)
    for p,es in files.items():
        t=text(p); b=t.encode(); o=offs(t)
        rs=sorted({(o[e['range']['start']['line']]+e['range']['start']['character'],o[e['range']['end']['line']]+e['range']['end']['character'],e['newText']) for e in es},reverse=True)
        for a,z,n in rs: b=b[:a]+n.encode()+b[z:]
        set_text(p,b.decode())
    for a,z in moves:
        subprocess.run(['git','mv',a,z],cwd=ROOT,check=True)
        for q in list(texts):
            if q==a or q.startswith(a+'/'):
                n=z+q[len(a):]; ra.note('textDocument/didClose',{'textDocument':{'uri':uri(q)}}); texts.pop(q); text(n)
        ra.note('workspace/didChangeWatchedFiles',{'changes':[{'uri':uri(a),'type':3},{'uri':uri(z),'type':1}]})
    return sum(map(len,files.values())),len(files)
STRIP=re.compile(r'//[^\n]*|/\*.*?\*/|b?r#*".*?"#*|"(?:\\.|[^"\\])*"',re.S)
def code(t): return STRIP.sub(lambda m:re.sub(r'[^\n]',' ',m.group(0)),t)
def positions(p,old):
    t=text(p); c=code(t); out=[]
    for m in re.finditer(r'(?<![\w])'+re.escape(old)+r'(?!\w)',c):
        line=t.count('\n',0,m.start()); ls=t.rfind('\n',0,m.start())+1
        out.append((line,len(t[ls:m.start()].encode()),t[ls:t.find('\n',m.start())]))
    return out
def define(p,line,ch):
    r=ra.req('textDocument/definition',{'textDocument':{'uri':uri(p)},'position':{'line':line,'character':ch}},120)
    if isinstance(r,dict): r=[r]
    return [((x.get('uri') or x.get('targetUri'))[7:],(x.get('range') or x.get('targetSelectionRange'))['start'],) for x in r or []]
def maybe(x,old):
    line,ch,src=x
    b=src.encode(); a=b[:ch].decode().rstrip(); z=b[ch+len(old):].decode().lstrip()
    if a.endswith(('.','::')) and not a.endswith('..'): return False
    kw=re.search(r'(?:^|\b)(fn|struct|enum|trait|type|const|static|mod|union|let|mut|ref|for)$',a)
    if kw: return True
    if z.startswith(('.','?','::',';','[','!','=>')) and not z.startswith('..'): return '=>' in z and not z.startswith(('.','?','::',';','[','!'))
    return True
def rename(path,kind,old,new,hint):
    p=os.path.join(ROOT,path)
    if not os.path.exists(p): return 'no file'
    done=0; tried=set(); problem=None
    while True:
        pos=[x for x in positions(p,old) if (x[0],x[1]) not in tried and maybe(x,old)]
        hit=None
        for line,ch,src in pos:
            tried.add((line,ch))
            if hint and hint not in src and hint not in orig_line(p,line): continue
            try: ds=define(p,line,ch)
            except Exception as e: problem=str(e); continue
            if kind=='mod':
                if not re.search(r'\bmod\s+'+old+r'\b',src): continue
            elif not any(d[0]==p and d[1]['line']==line and d[1]['character']<=ch<=d[1]['character']+len(old)+1 for d in ds): continue
            hit=(line,ch); break
        if not hit: break
        try:
            e=ra.req('textDocument/rename',{'textDocument':{'uri':uri(p)},'position':{'line':hit[0],'character':hit[1]},'newName':new},300)
            if e: apply(e); done+=1; tried=set(t for t in tried if t!=hit) if kind!='x' else tried
        except Exception as x: problem=str(x)
        if not os.path.exists(p): break
    return done if done else 'not done: '+str(problem)
if __name__=='__main__':
    rows=[]
    for tb in TABLES:
        for l in open(tb):
            f=l.rstrip('\n').split('\t')
            if len(f)<4 or f[0].startswith('#') or f[0]=='path' or f[3]=='=' : continue
            rows.append((f[0],f[1],f[2],f[3],f[4] if len(f)>4 else ''))
    for l in subprocess.run(['git','diff','-M30%','--name-status',BASE],cwd=ROOT,capture_output=True,text=True).stdout.split('\n'):
        f=l.split('\t')
        if f[0].startswith('R'):
            moved_from[os.path.join(ROOT,f[2])]=os.path.join(ROOT,f[1])
    to={v:k for k,v in moved_from.items()}
    rows=[(os.path.relpath(to.get(os.path.join(ROOT,r[0]),os.path.join(ROOT,r[0])),ROOT),)+r[1:] for r in rows]
    moved={}
    n=0;t=time.time()
    for i,(path,kind,old,new,hint) in enumerate(sorted(rows,key=lambda r:r[1]=='mod')):
        try: r=rename(path,kind,old,new,hint)
        except Exception as x: r='error '+repr(x)
        if isinstance(r,int): n+=r
        else: log('FAIL',path,kind,old,new,hint,r)
        if i%50==0: print(i,len(rows),n,'%.0f s'%(time.time()-t),flush=True)
    print('renamed',n,'%.0f s'%(time.time()-t))
    ra.p.kill()
