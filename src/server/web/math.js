// A subset of TeX's mathematics as MathML: fractions, roots, scripts, Greek, operators, accents, fonts,
// fences, matrices, cases, aligned lines. What it does not know is shown as its source in a box, never
// guessed. Bounded in depth and length; makes nodes only, no markup text.

const SPACE = 'http://www.w3.org/1998/Math/MathML';
const DEPTH_MAX = 40;
const CHARS_MAX = 8000;

function node(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function table(text) {
  return new Map(text.trim().split(/\s+/).map((pair) => {
    const at = pair.indexOf(':');
    return [pair.slice(0, at), pair.slice(at + 1)];
  }));
}

const LETTERS = table(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ
  vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν xi:ξ omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ
  varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ
  Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ aleph:ℵ
  emptyset:∅ varnothing:∅ imath:ı jmath:ȷ dots:… ldots:… cdots:⋯ vdots:⋮ ddots:⋱ angle:∠ degree:° prime:′
  top:⊤ bot:⊥ triangle:△ square:□ checkmark:✓ dagger:† S:§`);
const OPERATORS = table(`times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ odot:⊙
  leq:≤ le:≤ geq:≥ ge:≥ neq:≠ ne:≠ approx:≈ equiv:≡ cong:≅ sim:∼ simeq:≃ propto:∝ ll:≪ gg:≫ prec:≺ succ:≻
  in:∈ notin:∉ ni:∋ subset:⊂ supset:⊃ subseteq:⊆ supseteq:⊇ cup:∪ cap:∩ setminus:∖ land:∧ wedge:∧ lor:∨
  vee:∨ neg:¬ lnot:¬ forall:∀ exists:∃ nexists:∄ to:→ rightarrow:→ leftarrow:← leftrightarrow:↔
  Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹ iff:⟺ mapsto:↦ longrightarrow:⟶ uparrow:↑
  downarrow:↓ mid:∣ parallel:∥ perp:⊥ vdash:⊢ models:⊨ therefore:∴ because:∵ colon:: lvert:| rvert:|
  lVert:‖ rVert:‖ Vert:‖ vert:| langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ lbrace:{ rbrace:}
  nmid:∤ ltimes:⋉ rtimes:⋊ gets:← hookrightarrow:↪ rightleftharpoons:⇌`);
const LARGE = table(`sum:∑ prod:∏ coprod:∐ int:∫ iint:∬ iiint:∭ oint:∮ bigcup:⋃ bigcap:⋂ bigoplus:⨁
  bigotimes:⨂ bigwedge:⋀ bigvee:⋁`);
const NAMES = new Set(`sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp log ln lg det dim ker
  deg gcd hom arg Pr`.split(/\s+/));
const LIMIT_NAMES = new Set('lim max min sup inf limsup liminf argmax argmin'.split(' '));
const ACCENTS = table(`hat:^ widehat:^ bar:¯ overline:‾ vec:→ dot:˙ ddot:¨ tilde:˜ widetilde:˜ check:ˇ
  breve:˘ overrightarrow:→ overbrace:⏞`);
const UNDER = table('underline:_ underbrace:⏟');
const SPACES = new Map([[',', '0.167em'], [':', '0.222em'], [';', '0.278em'], ['!', '-0.167em'],
  [' ', '0.25em'], ['quad', '1em'], ['qquad', '2em'], ['enspace', '0.5em'], ['thinspace', '0.167em']]);
const FONTS = new Map([['mathbb', 'double'], ['mathbf', 'bold'], ['boldsymbol', 'bold'], ['bm', 'bold'],
  ['mathcal', 'script'], ['mathscr', 'script'], ['mathfrak', 'fraktur'], ['mathrm', 'upright'],
  ['mathsf', 'upright'], ['mathtt', 'upright'], ['mathit', 'plain'], ['operatorname', 'upright']]);
const IGNORED = new Set(`displaystyle textstyle limits nolimits nonumber notag big Big bigg Bigg bigl bigr
  Bigl Bigr biggl biggr middle`.split(/\s+/));
const ENVIRONMENTS = new Map([['matrix', ['', '']], ['pmatrix', ['(', ')']], ['bmatrix', ['[', ']']],
  ['Bmatrix', ['{', '}']], ['vmatrix', ['|', '|']], ['Vmatrix', ['‖', '‖']], ['cases', ['{', '']],
  ['aligned', ['', '']], ['align', ['', '']], ['align*', ['', '']], ['gathered', ['', '']],
  ['split', ['', '']], ['array', ['', '']], ['equation', ['', '']], ['equation*', ['', '']]]);
const SCRIPT_HOLES = { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' };
const DOUBLE_HOLES = { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' };
const FRAKTUR_HOLES = { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' };

class Unknown extends Error {}

/// A letter or digit in one of Unicode's mathematical alphabets.
function styled(c, font) {
  const upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z', digit = c >= '0' && c <= '9';
  const from = (capital, small, number) => {
    if (upper) return String.fromCodePoint(capital + c.charCodeAt(0) - 65);
    if (lower) return String.fromCodePoint(small + c.charCodeAt(0) - 97);
    return digit && number ? String.fromCodePoint(number + c.charCodeAt(0) - 48) : c;
  };
  if (font === 'bold') return from(0x1D400, 0x1D41A, 0x1D7CE);
  if (font === 'double') return DOUBLE_HOLES[c] || from(0x1D538, 0x1D552, 0x1D7D8);
  if (font === 'script') return SCRIPT_HOLES[c] || from(0x1D49C, 0x1D4B6, 0);
  if (font === 'fraktur') return FRAKTUR_HOLES[c] || from(0x1D504, 0x1D51E, 0);
  return c;
}

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
  }

  skip() { while (/\s/.test(this.text[this.at] || '')) this.at++; }
  peek() { this.skip(); return this.text[this.at]; }
  /// The command's name after a backslash, which stays unread.
  command() {
    if (this.peek() !== '\\') return null;
    const found = /^\\([A-Za-z]+\*?|[^A-Za-z])/.exec(this.text.slice(this.at, this.at + 40));
    return found ? found[1].replace(/(?<=[A-Za-z])\*$/, '') : null;
  }
  take(text) {
    if (!this.text.startsWith(text, this.at)) throw new Unknown('expected ' + text);
    this.at += text.length;
  }
  /// The text of {...}, unread as mathematics.
  raw() {
    this.skip();
    this.take('{');
    const end = this.text.indexOf('}', this.at);
    if (end < 0) throw new Unknown('no }');
    const inside = this.text.slice(this.at, end);
    if (inside.includes('{') || inside.includes('\\')) throw new Unknown('nested text');
    this.at = end + 1;
    return inside;
  }

  /// Rows until one of the ends, which stays unread.
  row(ends) {
    if (++this.depth > DEPTH_MAX) throw new Unknown('too deep');
    const made = node('mrow');
    for (;;) {
      const c = this.peek();
      const command = this.command();
      if (c === undefined || ends.includes(c) || (command !== null && ends.includes('\\' + command))) break;
      if (c === '}' || c === '&' || command === 'right' || command === 'end') throw new Unknown('stray ' + c);
      const item = this.scripts();
      if (item) made.append(item);
    }
    this.depth--;
    return made;
  }

  /// {...} or one item.
  argument() {
    if (this.peek() === '{') {
      this.at++;
      const inside = this.row(['}']);
      this.take('}');
      return inside;
    }
    const one = this.item();
    if (!one) throw new Unknown('no argument');
    return one;
  }

  scripts() {
    const c = this.peek();
    const base = c === '^' || c === '_' ? node('mrow') : this.item();
    if (!base) return null;
    let under = null, over = null;
    for (let mark = this.peek(); mark === '^' || mark === '_' || mark === "'"; mark = this.peek()) {
      if (mark === "'") {
        let primes = '';
        while (this.text[this.at] === "'") { primes += '′'; this.at++; }
        over = over ? node('mrow', null, over, node('mo', null, primes)) : node('mo', null, primes);
        continue;
      }
      this.at++;
      if (mark === '^' ? over && over.localName !== 'mo' : under) throw new Unknown('two scripts');
      const script = this.argument();
      if (mark === '_') under = script;
      else over = over ? node('mrow', null, over, script) : script;
    }
    const limits = base.limits === true;
    if (under && over) return node(limits ? 'munderover' : 'msubsup', null, base, under, over);
    if (under) return node(limits ? 'munder' : 'msub', null, base, under);
    if (over) return node(limits ? 'mover' : 'msup', null, base, over);
    return base;
  }

  item() {
    const c = this.peek();
    if (c === undefined) return null;
    if (c === '{') return this.argument();
    if (c === '\\') return this.macro();
    const number = /^\d+(?:[.,]\d+)*/.exec(this.text.slice(this.at, this.at + 60));
    if (number) { this.at += number[0].length; return node('mn', null, number[0]); }
    const point = String.fromCodePoint(this.text.codePointAt(this.at));
    this.at += point.length;
    if (point === '~') return node('mspace', { width: '0.25em' });
    if (/[\p{L}]/u.test(point)) return node('mi', null, point);
    if ('()[]|'.includes(point)) return node('mo', { stretchy: 'false' }, point);
    if ('#%$&_^'.includes(point)) throw new Unknown(point);
    return node('mo', null, point === '-' ? '−' : point === '*' ? '∗' : point);
  }

  macro() {
    const name = this.command();
    if (name === null) throw new Unknown('a backslash');
    this.at += name.length + 1;
    if (/^[A-Za-z]/.test(name) && this.text[this.at] === '*') this.at++;
    if (LETTERS.has(name)) return node('mi', null, LETTERS.get(name));
    if (OPERATORS.has(name)) return node('mo', null, OPERATORS.get(name));
    if (LARGE.has(name)) {
      const sign = node('mo', { largeop: 'true' }, LARGE.get(name));
      sign.limits = !name.includes('int');
      return sign;
    }
    if (NAMES.has(name)) return node('mi', { mathvariant: 'normal' }, name);
    if (LIMIT_NAMES.has(name)) {
      const word = node('mo', { movablelimits: 'true' }, name);
      word.limits = true;
      return word;
    }
    if (SPACES.has(name)) return node('mspace', { width: SPACES.get(name) });
    if (IGNORED.has(name)) return node('mrow');
    if ('{}%$#&_|'.includes(name)) return node('mo', { stretchy: 'false' }, name === '|' ? '‖' : name);
    if (ACCENTS.has(name))
      return node('mover', { accent: 'true' }, this.argument(), node('mo', null, ACCENTS.get(name)));
    if (UNDER.has(name)) return node('munder', null, this.argument(), node('mo', null, UNDER.get(name)));
    if (FONTS.has(name)) return this.font(name);
    return this.structure(name);
  }

  font(name) {
    const font = FONTS.get(name);
    if (font === 'upright') return node('mi', { mathvariant: 'normal' }, this.raw().trim());
    const inside = this.argument();
    for (const leaf of inside.localName === 'mi' || inside.localName === 'mn'
           ? [inside] : inside.querySelectorAll('mi, mn'))
      leaf.textContent = [...leaf.textContent].map((c) => styled(c, font)).join('');
    return inside;
  }

  structure(name) {
    switch (name) {
      case 'frac': case 'dfrac': case 'tfrac': case 'cfrac':
        return node('mfrac', null, this.argument(), this.argument());
      case 'binom':
        return node('mrow', null, node('mo', null, '('),
                    node('mfrac', { linethickness: '0' }, this.argument(), this.argument()),
                    node('mo', null, ')'));
      case 'sqrt': {
        if (this.peek() !== '[') return node('msqrt', null, this.argument());
        this.at++;
        const degree = this.row([']']);
        this.take(']');
        return node('mroot', null, this.argument(), degree);
      }
      case 'text': case 'textbf': case 'textrm': case 'textit': case 'mbox':
        return node('mtext', null, this.raw().replace(/ /g, '\u00a0'));
      case 'left': return this.fenced();
      case 'boxed': return node('mrow', { class: 'boxed' }, this.argument());
      case 'overset': case 'stackrel': {
        const over = this.argument();
        return node('mover', null, this.argument(), over);
      }
      case 'underset': {
        const under = this.argument();
        return node('munder', null, this.argument(), under);
      }
      case 'pmod': return node('mrow', null, node('mtext', null, '\u00a0(mod\u00a0'), this.argument(),
                               node('mo', { stretchy: 'false' }, ')'));
      case 'bmod': case 'mod': return node('mo', null, 'mod');
      case 'not': {
        const next = this.item();
        next.textContent += '\u0338';
        return next;
      }
      case 'begin': return this.environment();
      default: throw new Unknown('\\' + name);
    }
  }

  delimiter() {
    const name = this.command();
    if (name !== null) {
      this.at += name.length + 1;
      if ('{}|'.includes(name)) return name === '|' ? '‖' : name;
      if (OPERATORS.has(name)) return OPERATORS.get(name);
      throw new Unknown('\\' + name);
    }
    const c = this.peek();
    if (c === undefined || !'()[]|./<>'.includes(c)) throw new Unknown('a delimiter');
    this.at++;
    return c === '.' ? '' : c === '<' ? '⟨' : c === '>' ? '⟩' : c;
  }

  fenced() {
    const open = this.delimiter();
    const inside = this.row(['\\right']);
    this.take('\\right');
    const close = this.delimiter();
    return node('mrow', null, node('mo', { fence: 'true', stretchy: 'true' }, open), inside,
                node('mo', { fence: 'true', stretchy: 'true' }, close));
  }

  environment() {
    const name = this.raw();
    const fences = ENVIRONMENTS.get(name);
    if (!fences) throw new Unknown('environment ' + name);
    if (name === 'array') this.raw();
    const grid = node('mtable', name === 'cases' ? { columnalign: 'left' } : {});
    const lines = /^(aligned|align\*?|split)$/.test(name);
    if (lines || name === 'cases') grid.setAttribute('class', lines ? 'aligned' : 'cases');
    if (lines) grid.setAttribute('displaystyle', 'true');
    let cells = [];
    const endRow = () => { grid.append(node('mtr', null, ...cells)); cells = []; };
    for (;;) {
      cells.push(node('mtd', null, this.row(['&', '\\\\', '\\end'])));
      if (this.peek() === '&') { this.at++; continue; }
      if (this.command() === '\\') { this.at += 2; endRow(); continue; }
      break;
    }
    if (cells.length > 1 || cells[0].textContent) endRow();
    this.take('\\end');
    if (this.raw() !== name) throw new Unknown('another \\end');
    const fence = (sign) => node('mo', { fence: 'true', stretchy: 'true' }, sign);
    return node('mrow', null, ...(fences[0] ? [fence(fences[0])] : []), grid,
                ...(fences[1] ? [fence(fences[1])] : []));
  }
}

/// MathML of TeX source, or its source in a box.
export function mathNode(source, display) {
  try {
    if (source.length > CHARS_MAX) throw new Unknown('too long');
    const parser = new Parser(source);
    const body = parser.row([]);
    const math = node('math', display ? { display: 'block' } : {}, body);
    math.setAttribute('aria-label', source.trim());
    return math;
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    const box = document.createElement(display ? 'pre' : 'code');
    box.className = 'tex';
    box.textContent = source.trim();
    box.title = 'TeX that this page does not draw: ' + error.message;
    return box;
  }
}
