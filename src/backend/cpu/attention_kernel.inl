// Causal attention of a few queries over the pages of one sequence, with an online softmax whose
// step is one page of 64 keys. A query's result depends on its own keys and the page size alone, so
// it is the same in every tile and every chunk of a prompt.
// Pages of other formats are widened to F32 in registers (keys) or in panels of 64 columns that
// stay in L1 (values), once for all queries of a tile; the arithmetic is that of F32 pages, but for
// a factor of a whole key, which multiplies its score. The bound: 2 head_dim FMAs per 16 keys and
// query, and K and V from memory once per tile.

namespace nibble::cpu {
namespace {

/// Added to scores: hides the first.
alignas(64) constexpr float kWithoutFirst[16] = {-__builtin_inff()};

struct SoftmaxState {
  float top = -__builtin_inff();
  float sum = 0.0F;
};

/// s[q][j] = the dot products of Q queries with 64 keys, in order over the head dimension.
template <int Q, typename Keys>
inline void score_page(const AttentionTile& t, int first, const std::byte* lines,
                       Vec (&s)[Q][kKeyVectors]) {
  clear(s);
  Keys keys(lines, t.head_dim);
  for (int d = 0; d < t.head_dim; d += Keys::kDims) {
    Vec key[Keys::kDims][kKeyVectors];
    keys.load(d, key);
    for (int q = 0; q < Q; ++q)
      for (int i = 0; i < Keys::kDims; ++i) {
        const Vec qd = broadcast(t.q[first + q][d + i]);
        for (int j = 0; j < kKeyVectors; ++j) s[q][j] = fma(qd, key[i][j], s[q][j]);
      }
  }
  for (int q = 0; q < Q; ++q) keys.finish(s[q]);
}

/// Turns scores into weights p [64] relative to the running maximum; returns the factor that the
/// earlier sums must take. Keys from `valid` on get weight zero, whatever their bytes; so does the
/// first of the sequence if queries do not see it, whose bytes must be finite. `begin`: the page's
/// first key.
inline float weigh_page(const AttentionTile& t, int begin, int valid, const Vec (&s)[kKeyVectors],
                        SoftmaxState& state, float* p) {
  const Vec hidden = broadcast(-__builtin_inff());
  Vec score[kKeyVectors];
  Vec top = hidden;
  for (int j = 0; j < kKeyVectors; ++j) {
    const int left = valid - 16 * j;
    const int lanes = left < 0 ? 0 : left > 16 ? 16 : left;
    score[j] = keep_first(mul(s[j], broadcast(t.scale)), lanes, hidden);
    if (begin == 0 && j == 0 && t.first_key > 0) score[j] = add(score[j], load(kWithoutFirst));
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

/// The share of Q queries in one page: the weights p of its first `valid` values (0: the query sees
/// none of them), and the factor of the queries' earlier sums.
template <int Q>
struct PageWeights {
  alignas(64) float p[Q][kPageKeys];
  float factor[Q];
  int valid[Q];
};

/// Adjacent columns of a page's values in F32.
struct ValuePanel {
  const float* values;
  int64_t stride;
};

/// Vectors of columns from `column` on, the last one of `lanes`.
struct ValueColumns {
  int column;
  int lanes;
};

/// out = out * factor + sum_j p[j] values[j], in order over j, for P vectors of columns and N
/// queries from q on that see as many values.
template <int N, int P, int Q>
inline void add_values(const AttentionTile& t, int first, const PageWeights<Q>& w, int q,
                       const ValuePanel& panel, const ValueColumns& columns) {
  const auto lanes_of = [&](int i) { return i + 1 < P ? 16 : columns.lanes; };
  const auto out = [&](int n) { return t.out[first + q + n] + columns.column; };
  Vec sum[N][P];
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < P; ++i)
      sum[n][i] = mul(load_n(out(n) + 16 * i, lanes_of(i)), broadcast(w.factor[q + n]));
  for (int j = 0; j < w.valid[q]; ++j) {
    Vec row[P];
    for (int i = 0; i < P; ++i)
      row[i] = load_n(panel.values + j * panel.stride + 16 * i, lanes_of(i));
    for (int n = 0; n < N; ++n) {
      const Vec pj = broadcast(w.p[q + n][j]);
      for (int i = 0; i < P; ++i) sum[n][i] = fma(pj, row[i], sum[n][i]);
    }
  }
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < P; ++i) store_n(out(n) + 16 * i, sum[n][i], lanes_of(i));
}

/// Columns [column, column + 16 (P - 1) + lanes) of the first `rows` values: in place if they are
/// F32, else widened into `room`.
template <int P, typename Values>
inline ValuePanel value_panel(const Values& values, int column, int rows, int lanes, float* room) {
  if constexpr (Values::kInPlace) {
    return {values.row(0) + column, values.head_dim};
  } else {
    for (int j = 0; j < rows; ++j) {
      const auto row = values.row(j);
      for (int i = 0; i + 1 < P; ++i) store(room + 16 * (j * P + i), row.load(column + 16 * i, 16));
      store(room + 16 * (j * P + P - 1), row.load(column + 16 * (P - 1), lanes));
    }
    return {room, 16 * P};
  }
}

template <int P, int Q, typename Values>
inline void add_columns(const AttentionTile& t, int first, const PageWeights<Q>& w,
                        const Values& values, int column, int lanes) {
  alignas(64) float room[Values::kInPlace ? 1 : kPageKeys * 16 * P];
  int rows = 0;
  bool same = true;
  for (int q = 0; q < Q; ++q) {
    rows = w.valid[q] > rows ? w.valid[q] : rows;
    same = same && w.valid[q] == w.valid[0];
  }
  const ValuePanel panel = value_panel<P>(values, column, rows, lanes, room);
  if (same) return add_values<Q, P>(t, first, w, 0, panel, {column, lanes});
  for (int q = 0; q < Q; ++q)
    if (w.valid[q] > 0) add_values<1, P>(t, first, w, q, panel, {column, lanes});
}

template <int Q, typename Values>
inline void add_page(const AttentionTile& t, int first, const PageWeights<Q>& w,
                     const std::byte* lines) {
  const Values values{lines, t.head_dim};
  int column = 0;
  for (; column + 64 <= t.head_dim; column += 64)
    add_columns<4, Q>(t, first, w, values, column, 16);
  for (; column < t.head_dim; column += 16) {
    const int left = t.head_dim - column;
    add_columns<1, Q>(t, first, w, values, column, left < 16 ? left : 16);
  }
}

template <int Q, typename Format>
void attend(const AttentionTile& t, int first) {
  SoftmaxState state[Q];
  int visible_max = 0;
  for (int q = 0; q < Q; ++q) {
    for_lanes(t.head_dim, [&](int i, int lanes) { store_n(t.out[first + q] + i, zero(), lanes); });
    if (t.visible[first + q] > visible_max) visible_max = t.visible[first + q];
  }
  for (int begin = 0; begin < visible_max; begin += kPageKeys) {
    const std::byte* page = t.cache + t.pages[begin / kPageKeys] * t.page_stride;
    Vec s[Q][kKeyVectors];
    score_page<Q, typename Format::Keys>(t, first, page + t.k_offset, s);
    PageWeights<Q> w;
    for (int q = 0; q < Q; ++q) {
      const int left = t.visible[first + q] - begin;
      w.valid[q] = left < 0 ? 0 : left < kPageKeys ? left : kPageKeys;
      if (w.valid[q] > 0) w.factor[q] = weigh_page(t, begin, w.valid[q], s[q], state[q], w.p[q]);
    }
    add_page<Q, typename Format::Values>(t, first, w, page + t.v_offset);
  }
  for (int q = 0; q < Q; ++q) {
    float* out = t.out[first + q];
    const Vec total = broadcast(state[q].sum);
    for_lanes(t.head_dim, [&](int i, int lanes) {
      store_n(out + i, div(load_n(out + i, lanes), total), lanes);
    });
  }
}

template <int Q, typename Format>
void attend_from(const AttentionTile& t, int first) {
  for (; first + Q <= t.queries; first += Q) attend<Q, Format>(t, first);
  if constexpr (Q > 1) {
    if (first < t.queries) attend_from<Q / 2, Format>(t, first);
  }
}

void attention(const AttentionTile& tile) {
  switch (tile.format) {
    case KvFormat::f32:
      return attend_from<kQueriesPerTile, PlainLines<F32Elements>>(tile, 0);
    case KvFormat::bf16:
      return attend_from<kQueriesPerTile, PlainLines<Bf16Elements>>(tile, 0);
    case KvFormat::fp8:
      return attend_from<kQueriesPerTile, PlainLines<E4m3Elements>>(tile, 0);
    case KvFormat::turboquant_4bit_nc:
      return attend_from<kQueriesPerTile, TurboquantLines>(tile, 0);
    case KvFormat::nvfp4:
      return attend_from<kQueriesPerTile, Nvfp4Lines>(tile, 0);
  }
}

}  // namespace
}  // namespace nibble::cpu
