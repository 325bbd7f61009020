-- depends_on: {{ ref('training') }}
SELECT c.customer_id, dana_predict('leaving', c) AS risk FROM {{ ref('customers') }} AS c
