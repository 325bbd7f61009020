"""The rules of `dana.rules` beside scikit-learn's estimators: same rows, same split, same metric."""
