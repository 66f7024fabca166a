import re,sys,glob,textwrap
W=100
LIST=re.compile(r'^(\s*)([-*]|\d+\.)\s+')
def special(b):
    return (not b.strip()) or b.lstrip().startswith(('|','#','```','>','┌','│','└')) or re.search(r'\S {2,}\S',b) or '─' in b or '→  ' in b
def flow(prefix,lines):
    # lines: bodies without prefix and one space
    out=[];i=0;fence=False
    while i<len(lines):
        b=lines[i]
        if b.lstrip().startswith('```'):
            fence=not fence; out.append(b); i+=1; continue
        if fence or special(b) or (b.startswith(' ') and not LIST.match(b)):
            out.append(b); i+=1; continue
        m=LIST.match(b); ind=m.group(0) if m else ''
        para=[b]; j=i+1
        while j<len(lines):
            n=lines[j]
            if special(n) or LIST.match(n): break
            if m:
                if not n.startswith(' '*len(ind)) : break
                if n[len(ind):].startswith(' '): break
            elif n.startswith(' '): break
            para.append(n); j+=1
        if any(len(prefix)+1+len(x)>W for x in para):
            text=' '.join(x.strip() for x in para)
            if m: text=text[len(ind.strip())+1:] if False else text[len(ind.lstrip()):]
            r=textwrap.wrap(text,W-len(prefix)-1,initial_indent=ind,subsequent_indent=' '*len(ind),break_long_words=False,break_on_hyphens=False)
            out+=r
        else: out+=para
        i=j
    return out
def do(f):
    src=open(f).read().split('\n'); out=[];i=0
    while i<len(src):
        m=re.match(r'^(\s*)(//[/!]?)(?!/)( ?)(.*)$',src[i])
        if not m: out.append(src[i]); i+=1; continue
        pre=m.group(1)+m.group(2); blk=[]
        while i<len(src):
            n=re.match(r'^(\s*)(//[/!]?)(?!/)( ?)(.*)$',src[i])
            if not n or n.group(1)+n.group(2)!=pre or (n.group(3)=='' and n.group(4)): break
            blk.append(n.group(4)); i+=1
        if not blk: out.append(src[i]); i+=1; continue
        out+=[(pre+' '+b).rstrip() for b in flow(pre,blk)]
    n='\n'.join(out)
    if n!='\n'.join(src): open(f,'w').write(n); return True
if __name__=='__main__':
    root=sys.argv[1]; c=0
    for d in ('crates','tests','xtask','examples'):
        for f in glob.glob(f'{root}/{d}/**/*.rs',recursive=True):
            if '/target/' in f or '/fixtures/' in f: continue
            c+=bool(do(f))
    print(c)
