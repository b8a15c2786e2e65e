// Causal attention of a few queries over the pages of one sequence, with an online softmax whose
// step is one page of 64 keys. A query's result depends on its own keys and the page size alone, so
// it is the same in every tile and every piece of a prompt.
// The bound: 2 head_dim FMAs per 16 keys and query, and K and V from memory once per tile.

namespace nibble::cpu {
namespace {

constexpr int kPageKeys = 64;
constexpr int kKeyVectors = kPageKeys / 16;

struct SoftmaxState {
  float top = -__builtin_inff();
  float sum = 0.0F;
};

/// s[q][j] = the dot products of Q queries with 64 keys, in order over the head dimension.
template <int Q>
inline void score_page(const AttentionTile& t, int first, const float* keys,
                       Vec (&s)[Q][kKeyVectors]) {
  clear(s);
  for (int d = 0; d < t.head_dim; ++d) {
    Vec key[kKeyVectors];
    for (int j = 0; j < kKeyVectors; ++j) key[j] = load(keys + int64_t{d} * kPageKeys + 16 * j);
    for (int q = 0; q < Q; ++q) {
      const Vec qd = broadcast(t.q[first + q][d]);
      for (int j = 0; j < kKeyVectors; ++j) s[q][j] = fma(qd, key[j], s[q][j]);
    }
  }
}

/// Turns scores into weights p [64] relative to the running maximum; returns the factor that the
/// earlier sums must take. Keys from `valid` on get weight zero, whatever their bytes.
inline float weigh_page(const AttentionTile& t, int valid, const Vec (&s)[kKeyVectors],
                        SoftmaxState& state, float* p) {
  const Vec hidden = broadcast(-__builtin_inff());
  Vec score[kKeyVectors];
  Vec top = hidden;
  for (int j = 0; j < kKeyVectors; ++j) {
    const int left = valid - 16 * j;
    const int lanes = left < 0 ? 0 : left > 16 ? 16 : left;
    score[j] = keep_first(mul(s[j], broadcast(t.scale)), lanes, hidden);
    top = max(top, score[j]);
  }
  const float page_top = reduce_max(top);
  const float new_top = page_top > state.top ? page_top : state.top;
  Vec sum = zero();
  for (int j = 0; j < kKeyVectors; ++j) {
    const Vec e = exp_of(sub(score[j], broadcast(new_top)));
    sum = add(sum, e);
    store(p + 16 * j, e);
  }
  alignas(64) float factor[16];
  store(factor, exp_of(broadcast(state.top - new_top)));
  state.top = new_top;
  state.sum = __builtin_fmaf(state.sum, factor[0], reduce_add(sum));
  return factor[0];
}

struct WeightedValues {
  const float* p;
  const float* values;  // [64, head_dim]
  int head_dim;
  int valid;
  float factor;
  float* out;
};

/// out = out * factor + sum_j p[j] values[j], in order over j, for P vectors of columns.
template <int P>
inline void add_values(const WeightedValues& w, int column, int lanes) {
  const auto lanes_of = [&](int i) { return i + 1 < P ? 16 : lanes; };
  Vec sum[P];
  for (int i = 0; i < P; ++i)
    sum[i] = mul(load_n(w.out + column + 16 * i, lanes_of(i)), broadcast(w.factor));
  for (int j = 0; j < w.valid; ++j) {
    const float* row = w.values + int64_t{j} * w.head_dim + column;
    const Vec pj = broadcast(w.p[j]);
    for (int i = 0; i < P; ++i) sum[i] = fma(pj, load_n(row + 16 * i, lanes_of(i)), sum[i]);
  }
  for (int i = 0; i < P; ++i) store_n(w.out + column + 16 * i, sum[i], lanes_of(i));
}

inline void add_all_values(const WeightedValues& w) {
  int column = 0;
  for (; column + 64 <= w.head_dim; column += 64) add_values<4>(w, column, 16);
  for (; column < w.head_dim; column += 16) {
    const int left = w.head_dim - column;
    add_values<1>(w, column, left < 16 ? left : 16);
  }
}

template <int Q>
void attend(const AttentionTile& t, int first) {
  SoftmaxState state[Q];
  int visible_max = 0;
  for (int q = 0; q < Q; ++q) {
    for_lanes(t.head_dim, [&](int i, int lanes) { store_n(t.out[first + q] + i, zero(), lanes); });
    if (t.visible[first + q] > visible_max) visible_max = t.visible[first + q];
  }
  for (int begin = 0; begin < visible_max; begin += kPageKeys) {
    const float* page = t.cache + t.pages[begin / kPageKeys] * t.page_stride;
    Vec s[Q][kKeyVectors];
    score_page<Q>(t, first, page + t.k_offset, s);
    for (int q = 0; q < Q; ++q) {
      const int left = t.visible[first + q] - begin;
      if (left <= 0) continue;
      const int valid = left < kPageKeys ? left : kPageKeys;
      alignas(64) float p[kPageKeys];
      const float factor = weigh_page(t, valid, s[q], state[q], p);
      add_all_values({p, page + t.v_offset, t.head_dim, valid, factor, t.out[first + q]});
    }
  }
  for (int q = 0; q < Q; ++q) {
    float* out = t.out[first + q];
    const Vec total = broadcast(state[q].sum);
    for_lanes(t.head_dim, [&](int i, int lanes) {
      store_n(out + i, div(load_n(out + i, lanes), total), lanes);
    });
  }
}

template <int Q>
void attend_from(const AttentionTile& t, int first) {
  for (; first + Q <= t.queries; first += Q) attend<Q>(t, first);
  if constexpr (Q > 1) {
    if (first < t.queries) attend_from<Q / 2>(t, first);
  }
}

void attention(const AttentionTile& tile) { attend_from<kQueriesPerTile>(tile, 0); }

}  // namespace
}  // namespace nibble::cpu
