-- The rows and columns to learn from. Each build trains the next version, which predictions then use.
{{ config(
    materialized='table',
    post_hook="SELECT dana_train('logistic', '{{ this }}', 'leaving', label => 'churned', test_size => 0.2, nulls => 'mean')"
) }}
SELECT city, plan, age, income, signed_up, visits, churned FROM {{ ref('customers') }}
