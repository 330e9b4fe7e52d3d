/* SPDX-License-Identifier: Apache-2.0 */
int soft_clip(const float *x, const int32_t *x_dims, float *y, const int32_t *y_dims, float limit, int32_t power)
{
    (void)y_dims;
    for (int32_t i = 0; i < x_dims[0] * x_dims[1]; i++) {
        float v = x[i];
        for (int32_t p = 1; p < power; p++)
            v *= x[i];
        y[i] = v / (1.0f + (v < 0 ? -v : v) / limit);
    }
    return 0;
}

/* Sums and products of all pairs; one row a task. The workspace is there to be used. */
int pairs(const int32_t *a, const int32_t *a_dims, const int32_t *b, const int32_t *b_dims, int32_t *sum,
          const int32_t *sum_dims, int32_t *product, const int32_t *product_dims, int32_t begin, int32_t end,
          void *workspace)
{
    int32_t *copy = workspace;
    (void)a_dims, (void)sum_dims, (void)product_dims;
    for (int32_t j = 0; j < b_dims[0]; j++)
        copy[j] = b[j];
    for (int32_t i = begin; i < end; i++)
        for (int32_t j = 0; j < b_dims[0]; j++) {
            if (a[i] < 0)
                return 1;
            sum[i * b_dims[0] + j] = a[i] + copy[j];
            product[i * b_dims[0] + j] = a[i] * copy[j];
        }
    return 0;
}
