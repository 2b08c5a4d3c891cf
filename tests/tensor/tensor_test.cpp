// Shape and Tensor: sizes, views of the same bytes, and messages for misuse.
#include "weft/tensor/tensor.h"

#include "weft/tensor/allocator.h"

namespace weft {
namespace {

TEST(ShapeTest, SizesAndIndices) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(fmt::format("{}", shape), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(fmt::format("{}", Shape{}), "[]");
  EXPECT_EQ((Shape{5, 0}).numel(), 0);
}

TEST(ShapeTest, EqualityLooksAtRankAndDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  EXPECT_NE((Shape{2, 0}), (Shape{2, 0, 0}));
}

TEST(ShapeTest, RefusesMoreThanFourDims) { EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error); }

class TensorTest : public testing::Test {
 protected:
  Allocator allocator;
};

TEST_F(TensorTest, RowsAndColumns) {
  const Tensor x = allocator.empty(DType::bf16, {2, 3, 4});
  EXPECT_EQ(x.rows(), 6);
  EXPECT_EQ(x.cols(), 4);
  EXPECT_EQ(x.bytes(), 48u);
  EXPECT_EQ(allocator.empty(DType::f32, {}).numel(), 1);
  EXPECT_EQ(allocator.empty(DType::f32, {3, 0}).rows(), 3);
  EXPECT_FALSE(Tensor());
  EXPECT_TRUE(x);
}

TEST_F(TensorTest, SlicesShareTheBytes) {
  const Tensor x = allocator.empty(DType::i32, {4, 3});
  for (int i = 0; i < 12; ++i) x.data<int32_t>()[i] = i;
  const Tensor rows = x.slice_rows(1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(*rows.data<int32_t>(), 3);
  EXPECT_EQ(*rows.slice_rows(1, 1).data<int32_t>(), 6);
  const Tensor flat = x.slice_flat(5, {2, 2});
  EXPECT_EQ(*flat.data<int32_t>(), 5);
  flat.data<int32_t>()[3] = 80;
  EXPECT_EQ(x.data<int32_t>()[8], 80);
  EXPECT_EQ(*x.reshape({2, 6}).slice_rows(1, 1).data<int32_t>(), 6);
  EXPECT_TRUE(flat.shares_buffer_with(x));
  EXPECT_FALSE(Tensor().shares_buffer_with(Tensor()));
  EXPECT_EQ(x.slice_rows(4, 0).numel(), 0);
}

TEST_F(TensorTest, RefusesWhatDoesNotFit) {
  const Tensor x = allocator.empty(DType::i32, {4, 3});
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_THROW(x.reshape({5}), Error);
  EXPECT_THROW(x.slice_rows(3, 2), Error);
  EXPECT_THROW(x.slice_rows(-1, 2), Error);
  EXPECT_THROW(x.slice_flat(10, {3}), Error);
}

TEST_F(TensorTest, AViewKeepsTheBufferAlive) {
  Tensor view;
  {
    const Tensor x = allocator.zeros(DType::f32, {100});
    view = x.slice_flat(99, {1});
  }
  EXPECT_GT(allocator.stats().live_bytes, 0);
  EXPECT_EQ(*view.data<float>(), 0);
  view = {};
  EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST_F(TensorTest, CopiesAndMovesCountReferences) {
  Tensor x = allocator.empty(DType::f32, {4});
  Tensor y = x;
  Tensor& alias = y;
  y = alias;
  x = std::move(y);
  EXPECT_TRUE(x);
  EXPECT_GT(allocator.stats().live_bytes, 0);
  x = {};
  EXPECT_EQ(allocator.stats().live_bytes, 0);
}

}  // namespace
}  // namespace weft
