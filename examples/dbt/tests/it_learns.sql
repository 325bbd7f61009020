-- depends_on: {{ ref('training') }}
SELECT auc FROM (SELECT (dana_evaluate('leaving') ->> 'auc')::float8 AS auc) AS metrics WHERE NOT auc > 0.7
